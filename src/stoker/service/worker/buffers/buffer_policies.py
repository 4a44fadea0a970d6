"""The buffer of each way in which clients share a task."""

from stoker.service.messages import AnySharing, ByArrival, InRounds, ThroughCache
from stoker.service.worker.buffers.buffer import Buffer, FirstCome
from stoker.service.worker.buffers.round_robin import RoundRobin
from stoker.service.worker.buffers.sliding_window import SlidingWindow

DEFAULT_CACHE_BYTES = 10 << 30


def new_buffer(sharing: AnySharing, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Buffer:
    """Return an empty buffer for a task.

    Args:
        sharing: the rule by which clients share the task.
        cache_bytes: about the most bytes that a cross-trainer cache keeps for slower trainers.
    """
    if isinstance(sharing, ByArrival):
        return FirstCome()
    if isinstance(sharing, ThroughCache):
        return SlidingWindow(cache_bytes)
    assert isinstance(sharing, InRounds)
    finite = sharing.finite_coordinated
    return RoundRobin(sharing.num_consumers, sharing.absent, finite_coordinated=finite)
