"""The limit of open files of processes that serve."""

import resource

MOST_OPEN_FILES = 1 << 20
"""Enough for any server. Where the hard limit is far above it, programs that close every possible
descriptor of a child take minutes."""

_MACOS_OPEN_FILES = 10_240
"""OPEN_MAX of macOS, which refuses a soft limit above it."""


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files, and return it; child processes inherit it.

    A server has a descriptor for each session and connection, and the usual soft limit is 1,024.
    The libraries of a user's process that use `select`, which takes descriptors below 1,024 only,
    fail no earlier than without it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_OPEN_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return MOST_OPEN_FILES if soft == resource.RLIM_INFINITY else soft
    for limit in (wanted, min(wanted, _MACOS_OPEN_FILES)):
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
        except (ValueError, OSError):
            continue
        return limit
    return soft
