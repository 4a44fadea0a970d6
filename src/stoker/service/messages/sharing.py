"""The ways in which clients share a task."""

from typing import ClassVar

import msgspec


class TaskSharing(msgspec.Struct, frozen=True, tag=True):
    """Base of the rules for the client that gets each element of a task.

    `keeps_sent`: the worker keeps elements that it has sent, for other clients.
    """

    keeps_sent: ClassVar[bool] = False

    @property
    def run(self) -> int:
        """The number of elements that clients take together; 0 if each takes by itself."""
        return 0


class ByArrival(TaskSharing, frozen=True, tag=True):
    """Each element of a task goes to the client that takes first."""


class ThroughCache(TaskSharing, frozen=True, tag=True):
    """Every trainer gets all elements of a task from the worker's cross-trainer cache."""

    keeps_sent: ClassVar[bool] = True


class ByPosition(TaskSharing, frozen=True, tag=True):
    """Each client is sent the positions of the epoch that the client asks for (`frames.Want`)."""
