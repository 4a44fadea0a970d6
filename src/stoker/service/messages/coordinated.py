"""Coordinated reads: the consumers of a task, and the schedule that they agree on."""

import msgspec

from stoker.service.messages.session import Count, DispatcherMessage, Message
from stoker.service.messages.sharing import TaskSharing


class InRounds(TaskSharing, frozen=True, tag=True):
    """The consumers of a coordinated read share a task: each run has an element for each of them.

    `absent` are the indexes of consumers that have left. The end of the data is an error unless
    `finite_coordinated`.
    """

    num_consumers: int
    absent: list[int] = []
    finite_coordinated: bool = False

    @property
    def run(self) -> int:
        """The number of consumers."""
        return self.num_consumers


class RoundPosition(msgspec.Struct, frozen=True):
    """A place in the schedule of a coordinated read.

    `slot` is the number of slots before it, `turns` are the tasks from the next turn on, and `runs`
    the number of runs of each task before it. `step`: the number of elements that a consumer which
    owes none has yielded before it.
    """

    slot: Count = 0
    turns: list[int] = []
    runs: dict[int, Count] = {}
    step: Count = 0


class RoundsChange(msgspec.Struct, frozen=True):
    """The schedule of a coordinated read from a position on.

    `number` counts the changes. The first `fillers` slots are for consumers that lack elements of a
    lost worker; the others skip them. `last`: the iteration ends at the position. `left`: tasks
    without turns whose workers drain; a consumer leaves each as soon as it has received the runs
    before the position.
    """

    number: int
    position: RoundPosition
    fillers: int = 0
    last: bool = False
    left: list[int] = []


class RoundReached(Message, frozen=True, tag=True):
    """The position of a consumer, in answer to the `hold` of `Rounds`, or unasked.

    `hold` is 0 if it is unasked: it is `ready` to start, has passed all rounds that it knows
    (`at_end`), or has yielded `owed` elements less than the others. `received` is the number of
    runs that it has received of each lost task.
    """

    hold: int
    position: RoundPosition
    received: dict[int, Count] = {}
    owed: Count = 0
    at_end: bool = False
    ready: bool = False


# Between two changes, consumers follow the schedule by themselves. (docs/decisions/074)
class Rounds(DispatcherMessage, frozen=True, tag=True):
    """New changes of the schedule of a coordinated read.

    `hold`: not 0 while the next change is being agreed on: pass no more slots than have been
    passed, and answer with `RoundReached`. `ended`: tasks of which nothing is left.
    """

    changes: list[RoundsChange] = []
    hold: int = 0
    ended: list[int] = []
