"""glibc's allocator, tuned for decoders.

Decoders allocate and free half-megabyte buffers. With glibc's defaults each is mapped and unmapped,
or trimmed from the heap, so each costs page faults: a JPEG pipeline ran at 1,190 images/s by
default and at 1,540 to 1,640 with the thresholds below.

There is one arena for all threads. Each task has its own threads, so that with the default of 8
arenas a core every arena came to hold the buffer of a task, and only that of the main arena can be
returned: after 100 short epochs a worker kept 162 MB, now 28 MB. Decoders on 4 threads were 1.4 to
1.6 times as fast with one arena (2 cores), as memory that one freed is mapped for all.
"""

import ctypes
import sys

_M_TRIM_THRESHOLD = -1
_M_TOP_PAD = -2
_M_MMAP_THRESHOLD = -3
_M_ARENA_MAX = -8

_MMAP_THRESHOLD = 32 << 20  # the largest glibc accepts
# A JPEG pipeline ran at 1,190 images/s with glibc's defaults, and at 1,540 to 1,640 with higher
# thresholds. (docs/decisions/088)
_TRIM_THRESHOLD = 256 << 20
_TOP_PAD = 16 << 20

TRIM_SECONDS = 1.0
"""Seconds between the close of a task and `trim_allocator`, and least between two calls of it."""

_tuned = False


def tune_allocator() -> bool:
    """Keep up to 256 MiB of freed memory in this process.

    It does nothing if the C library is not glibc.

    Returns:
        Whether the C library accepted all settings.
    """
    if sys.platform != "linux":
        return False
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = (
        (_M_MMAP_THRESHOLD, _MMAP_THRESHOLD),
        (_M_TRIM_THRESHOLD, _TRIM_THRESHOLD),
        (_M_TOP_PAD, _TOP_PAD),
        (_M_ARENA_MAX, 1),
    )
    global _tuned
    _tuned = all(mallopt(option, value) == 1 for option, value in settings)
    return _tuned


def trim_allocator() -> None:
    """Return freed memory to the system if this process is tuned to keep it.

    It releases the GIL. The next task faults its pages in again.
    """
    if _tuned:
        ctypes.CDLL(None).malloc_trim(0)
