"""The buffer of each policy."""

from stoker.service.messages import BufferPolicy, TaskStart
from stoker.service.worker.buffers.buffer import Buffer, FirstCome
from stoker.service.worker.buffers.round_robin import RoundRobin
from stoker.service.worker.buffers.sliding_window import SlidingWindow

DEFAULT_CACHE_BYTES = 10 << 30


def new_buffer(start: TaskStart, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Buffer:
    """Return an empty buffer for a task, by its policy.

    Args:
        start: the task.
        cache_bytes: about the most bytes that a cross-trainer cache keeps for slower trainers.
    """
    match start.buffer:
        case BufferPolicy.FIRST_COME:
            return FirstCome()
        case BufferPolicy.SLIDING_WINDOW:
            return SlidingWindow(cache_bytes)
        case BufferPolicy.ROUND_ROBIN:
            finite = start.finite_coordinated
            return RoundRobin(start.num_consumers, start.absent, finite_coordinated=finite)
