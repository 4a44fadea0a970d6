"""Descriptions of jobs and tasks, which several messages contain."""

from typing import TypeAlias

import msgspec

from stoker.service.messages.coordinated import InRounds
from stoker.service.messages.sharing import ByArrival, ByPosition, ThroughCache
from stoker.service.rules.processing_modes import ShardingPolicy


class Versions(msgspec.Struct, frozen=True):
    """Versions that must match where a function is pickled and where it runs: "3.11" and "2"."""

    python: str
    numpy: str


AnySharing: TypeAlias = ByArrival | ThroughCache | InRounds | ByPosition


class SplitSource(msgspec.Struct, frozen=True):
    """A source that is read in `splits` splits; an index source has `count` elements."""

    number: int
    splits: int
    count: int | None = None


class TaskMode(msgspec.Struct, frozen=True, tag=True):
    """Base of what a task yields; `sharing` decides which client gets which element."""

    sharing: AnySharing = ByArrival()

    @property
    def split_sources(self) -> list[SplitSource] | None:
        """The sources whose splits the dispatcher assigns; ``None`` if it assigns none."""
        return None


class WholeTask(TaskMode, frozen=True, tag=True):
    """A task that yields the whole dataset."""


class JobParameters(msgspec.Struct, frozen=True):
    """Parameters that all clients of one job must agree on, besides the dataset's structure."""

    processing_mode: ShardingPolicy
    target_workers: str = "AUTO"
    num_consumers: int | None = None
    use_cross_trainer_cache: bool = False


# Ids are sequential and can be guessed; the key proves that the dispatcher gave the task.
# (docs/decisions/065)
class TaskInfo(msgspec.Struct, frozen=True):
    """A task with the addresses at which clients read it.

    `data_transfer_addresses` maps a data transfer protocol to the worker's address. The client
    shows the worker its `reader_id`, which is its own id unless it has left the task before, and
    the `reader_key` of that.
    """

    task_id: int
    worker: str
    data_transfer_addresses: dict[str, str]
    tags: list[str] = []
    reader_id: int = 0
    key: bytes = b""


STOPPED = "it was stopped"
"""Reason of the loss of a worker that was stopped as planned."""


class TaskLost(msgspec.Struct, frozen=True):
    """A task that can be read no more, and what clients had not consumed of it.

    `elements`: the number of elements lost, 0 if all were delivered; ``None`` if unknown: then
    elements of the `splits_begun` may be lost. `read_again`: the shard that another task reads from
    its beginning, or "".
    """

    task_id: int
    worker: str
    reason: str
    splits_begun: int = 0
    elements: int | None = None
    read_again: str = ""


# Losses are counted in elements where a process can still tell, and in splits after a crash, as an
# upper bound. (docs/decisions/062)
class ElementsDropped(msgspec.Struct, frozen=True):
    """The number of elements of a task that were sent to a client that was lost, in all."""

    task_id: int
    worker: str
    elements: int
