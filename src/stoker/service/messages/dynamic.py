"""DYNAMIC: tasks that read the splits which the dispatcher assigns to them."""

from typing import Any

from stoker.service.messages.session import DispatcherMessage, Message
from stoker.service.messages.tasks import SplitSource, TaskMode


class SplitTask(TaskMode, frozen=True, tag=True, kw_only=True):
    """A task that yields the splits of `sources` which the dispatcher assigns to it."""

    sources: list[SplitSource]

    @property
    def split_sources(self) -> list[SplitSource]:
        """The sources."""
        return self.sources


# Splits are announced two round trips ahead, so that readers do not wait. (docs/decisions/040)
class SplitRequest(Message, frozen=True, tag=True):
    """Announce that the splits in `begin` will be read, and ask for `want` more.

    Even near the end of the epoch the answer should have `least` splits, because fewer are not
    worth a round trip. `done`: the source has received its end, so no request will follow.
    """

    task_id: int
    source: int
    source_epoch: int
    begin: list[int] = []
    want: int = 0
    least: int = 1
    done: bool = False


class SplitGrant(DispatcherMessage, frozen=True, tag=True):
    """Answer to `SplitRequest`.

    `begun` splits may be read, `refused` ones may not; `splits` are assigned but not begun; `end`:
    all splits are begun.
    """

    task_id: int
    source: int
    source_epoch: int
    begun: list[int] = []
    refused: list[int] = []
    splits: list[tuple[int, Any]] = []
    end: bool = False


class ReturnSplits(DispatcherMessage, frozen=True, tag=True):
    """Splits that are assigned to the task, and not announced, are available to others."""

    task_id: int
