"""The time before the first element of a task, in which its worker imports modules."""

import sys
from types import FrameType

import msgspec

_IMPORT = "<frozen importlib._bootstrap>", "_find_and_load"
"""File and name of the function that every import of a new module runs."""


class Loading(msgspec.Struct, frozen=True):
    """State of a task that has no element yet, because its pipeline opens or a module is imported.

    Attributes:
        module: the module that is imported, or "".
        seconds: the time since the task began, waits for splits not included.
    """

    module: str
    seconds: float

    def __str__(self) -> str:
        doing = "opens the pipeline"
        if self.module:
            doing = f"loads the functions: imports {self.module}"
        return f"{doing}, {self.seconds:.0f} s"


def imported_module() -> str:
    """Return the module that a thread of this process imports now, or "".

    All threads count: functions are also called in threads of a pool, and a task whose thread waits
    for the lock of an import or of an unpickling waits for the thread that holds the lock.
    """
    return next(filter(None, map(_outermost_import, sys._current_frames().values())), "")


def _outermost_import(frame: FrameType | None) -> str:
    """Return the module that the user's code imports, not the modules imported by this module."""
    name = ""
    while frame is not None:
        if (frame.f_code.co_filename, frame.f_code.co_name) == _IMPORT:
            name = frame.f_locals.get("name", "")
        frame = frame.f_back
    return name
