"""The limit of open files of processes that serve."""

import resource

MOST_OPEN_FILES = 1 << 20
"""Enough for any server. With a far higher soft limit, programs that close every possible
descriptor of a child take minutes."""

_MACOS_OPEN_FILES = 10_240
"""OPEN_MAX of macOS, the highest soft limit there."""


def raise_open_files_limit() -> int:
    """Raise and return the soft limit of open files, which child processes inherit.

    A server has a descriptor for each session and connection, and the usual soft limit is 1,024.
    The libraries of a user's process that use `select`, which takes descriptors below 1,024 only,
    fail no earlier than without this call.
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
