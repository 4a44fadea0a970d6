"""The buffer of each policy."""

from stoker.service.messages import BufferPolicy
from stoker.service.worker.buffer import Buffer, FirstCome
from stoker.service.worker.sliding_window import SlidingWindow

DEFAULT_CACHE_BYTES = 10 << 30


def new_buffer(policy: BufferPolicy, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Buffer:
    """Return an empty buffer that follows `policy`.

    Args:
        policy: decides which client gets which element.
        cache_bytes: about the most bytes that a cross-trainer cache keeps for slower trainers.
    """
    match policy:
        case BufferPolicy.FIRST_COME:
            return FirstCome()
        case BufferPolicy.SLIDING_WINDOW:
            return SlidingWindow(cache_bytes)
