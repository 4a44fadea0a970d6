"""The buffer of each `BufferPolicy`."""

from stoker.service.messages import BufferPolicy, TaskStart
from stoker.service.worker.buffer import Buffer, FirstCome
from stoker.service.worker.round_robin import RoundRobin


def new_buffer(start: TaskStart) -> Buffer:
    """Return an empty buffer for a task."""
    if start.buffer is BufferPolicy.ROUND_ROBIN:
        return RoundRobin(
            start.num_consumers, start.absent, finite_coordinated=start.finite_coordinated
        )
    return FirstCome()
