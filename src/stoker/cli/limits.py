"""Limits of the operating system for servers."""

import resource

_MACOS_OPEN_FILES = 10_240
"""OPEN_MAX of macOS, which refuses a soft limit above it."""


def raise_open_files_limit() -> None:
    """Raise the soft limit of open files to the hard limit; child processes inherit it.

    A server has a descriptor for each session and connection, and the usual soft limit is 1,024.
    The process of a trainer keeps its limit: libraries in it may use `select`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == hard:
        return
    for limit in (hard, _MACOS_OPEN_FILES):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        return
