"""The Pythons of this machine that stoker supports."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

OLDEST = (3, 11)

_ASK_VERSION = "import sys, venv, ensurepip; print(*sys.version_info[:2])"


def interpreters() -> dict[str, Path]:
    """Return one interpreter for each minor version from 3.11 on, by version such as "3.12".

    Looked for are this process's Python, `python3.N` on the PATH, and the versions of pyenv, whose
    commands on the PATH work only for the version that a user has chosen.
    """
    found: dict[str, Path] = {}
    for candidate in _candidates():
        version = _version(candidate)
        if version >= OLDEST:
            found.setdefault(".".join(map(str, version)), candidate)
    return dict(sorted(found.items(), key=lambda item: int(item[0].partition(".")[2])))


def _candidates() -> list[Path]:
    on_path = [shutil.which(f"python3.{minor}") for minor in range(OLDEST[1], 30)]
    pyenv = Path(os.environ.get("PYENV_ROOT", "~/.pyenv")).expanduser()
    return [
        # Not the executable of a virtual environment, which would be the base of another.
        Path(sys._base_executable),  # type: ignore[attr-defined]
        *(Path(path) for path in on_path if path),
        *sorted(pyenv.glob("versions/3.*/bin/python3")),
    ]


def _version(python: Path) -> tuple[int, ...]:
    """Return (major, minor), or () of a Python that does not start or cannot create a venv."""
    done = subprocess.run([python, "-c", _ASK_VERSION], capture_output=True, text=True)
    return tuple(map(int, done.stdout.split())) if done.returncode == 0 else ()
