"""The line of the user's program that built a node."""

import functools
import os
import sys
import warnings
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

_PACKAGE = str(Path(__file__).resolve().parents[2]) + os.sep


def call_site() -> str:
    """Return ``"file:line"`` of the innermost frame outside stoker.

    A file in the working directory has its relative path. A line of a notebook has its cell,
    ``"Cell In[12], line 1"``.
    """
    frame, _ = _user_frame()
    file = frame.f_code.co_filename
    cell = cell_of(file)
    return f"{cell}, line {frame.f_lineno}" if cell else f"{_file_name(file)}:{frame.f_lineno}"


def cell_of(file: str) -> str | None:
    """Return IPython's name of the cell that has this file name, such as "Cell In[12]"."""
    shell: Any = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if shell is None:
        return None
    name_of = getattr(shell.compile, "format_code_name", lambda _: None)  # since IPython 7.23
    found: tuple[str, str] | None = name_of(file)
    return None if found is None else " ".join(found)


def warn_at_call_site(message: str) -> None:
    """Issue a `UserWarning` at the line of the innermost frame outside stoker."""
    _, depth = _user_frame()
    warnings.warn(message, UserWarning, stacklevel=depth)


def _user_frame() -> tuple[FrameType, int]:
    """Return the innermost frame outside stoker, and its depth below the caller's frame, from 1."""
    frame, depth = sys._getframe(1), 1
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return frame, depth


@functools.lru_cache(maxsize=1024)  # asking for the working directory is a system call
def _file_name(path: str) -> str:
    with suppress(OSError):  # the working directory may have been removed
        path = path.removeprefix(str(Path.cwd()) + os.sep)
    return path.encode(errors="backslashreplace").decode()  # messages carry only UTF-8
