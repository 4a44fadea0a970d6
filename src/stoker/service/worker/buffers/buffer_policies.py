"""The buffer of each way in which clients share a task."""

from stoker.service.messages import AnyTask, ByArrival, InRounds, PositionTask, ThroughCache
from stoker.service.worker.buffers.buffer import Buffer, FirstCome
from stoker.service.worker.buffers.round_robin import RoundRobin
from stoker.service.worker.buffers.sliding_window import SlidingWindow
from stoker.service.worker.wants.position_buffer import PositionBuffer

DEFAULT_CACHE_BYTES = 10 << 30


def new_buffer(mode: AnyTask, cache_bytes: int = DEFAULT_CACHE_BYTES) -> Buffer:
    """Return an empty buffer for a task.

    Args:
        mode: what the task yields, and how clients share it.
        cache_bytes: about the most bytes that a cross-trainer cache keeps for slower trainers.
    """
    if isinstance(mode, PositionTask):
        return PositionBuffer(mode.length)
    sharing = mode.sharing
    if isinstance(sharing, ByArrival):
        return FirstCome()
    if isinstance(sharing, ThroughCache):
        return SlidingWindow(cache_bytes)
    assert isinstance(sharing, InRounds)
    finite = sharing.finite_coordinated
    return RoundRobin(sharing.num_consumers, sharing.absent, finite_coordinated=finite)
