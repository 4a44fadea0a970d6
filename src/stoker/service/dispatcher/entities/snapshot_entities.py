"""Entities of a snapshot, as they are encoded.

As records do, they change only by new fields at their end that have a default.
"""

from typing import TypeAlias

import msgspec

from stoker.dataset.streams.calls.call_ranges import CallRange, PoisonedCall
from stoker.dataset.tree.splits import ShardBy
from stoker.errors import ErrorRecord
from stoker.service.dispatcher.entities.records import (
    DatasetAdded,
    JobAdded,
    PageStored,
    WorkerAdded,
)
from stoker.service.messages import RoundPosition, RoundsChange, SplitSource


class Entity(msgspec.Struct, frozen=True, array_like=True, tag=lambda name: f"_{name}"):
    """Base of the entities in a snapshot; their tags are none of records."""


class Header(Entity, frozen=True):
    """The history that the snapshot belongs to, and the first id that it has not given.

    `position`, `position_key` and `boots` as in `State`.
    """

    journal_id: str
    ids_end: int
    position: int = 0
    position_key: bytes = b""
    boots: dict[int, int] = {}


class Worker(Entity, frozen=True):
    """A worker, or one that was lost and had tasks that are still known."""

    added: WorkerAdded
    draining: bool
    lost: bool


class Job(Entity, frozen=True):
    """A job; `dataset_id` is its present dataset."""

    added: JobAdded
    dataset_id: str
    codes: list[str]


class Cancelled(Entity, frozen=True):
    """The clients of cancelled jobs by key, the latest last."""

    jobs: list[tuple[bytes, str]]


class Tracker(Entity, frozen=True):
    """The begun splits of one epoch of a source, and the tasks that read it."""

    source: int
    source_epoch: int
    total: int
    begun: list[tuple[int, int]]
    begun_counts: dict[int, int]
    recent: dict[int, list[tuple[int, int]]]
    readers: list[int]


class Iteration(Entity, frozen=True):
    """An iteration; `values` are the digests and counts of the pages of each source."""

    iteration_id: int
    job: str
    epoch: tuple[int, ...]
    seed: int
    sources: list[SplitSource] | None
    values: dict[int, list[tuple[bytes, int]]]
    trackers: list[Tracker]
    read_epochs: dict[int, tuple[int, list[int]]]
    splits_read: dict[int, int]
    error: ErrorRecord | None
    workers_wait: bool
    unread: list[int]
    damaged: list[int]
    left: list[tuple[int, dict[int, tuple[int, int]]]]
    clients_opened: int
    computed: bool
    finished: bool
    stopped: bool
    deaths: list[list[CallRange]]
    calls_in_common: list[CallRange]
    seeds_of_dead: list[int]
    poisoned: list[PoisonedCall]
    shards: int = 0
    shard_by: ShardBy | None = None
    finite_coordinated: bool = False
    rounds: list[RoundsChange] = []
    indexes: list[int] = []
    left_at: dict[int, RoundPosition] = {}


class Client(Entity, frozen=True):
    """A client; `start` is its position at the change `starts_at` of a coordinated read."""

    client_id: int
    iteration_id: int
    process: str
    key: bytes
    tasks: list[int]
    left_tasks: list[int]
    consumer_index: int | None = None
    starts_at: int | None = None
    start: RoundPosition | None = None


class Task(Entity, frozen=True):
    """A task; `kept`: its worker keeps it."""

    task_id: int
    worker_id: int
    iteration_id: int
    seed: int
    key: bytes
    exhausted: bool
    read: bool
    delivered: bool
    dropped: int
    lost: str
    splits_lost: int
    elements_lost: int | None
    readers: dict[int, int]
    leaving: dict[int, int]
    kept: bool
    by_worker: bool
    poisoned_known: int


AnyEntity: TypeAlias = (
    Header | DatasetAdded | PageStored | Worker | Job | Cancelled | Iteration | Client | Task
)
"""An entry of a part; what a record says as it is, is stored as that record."""
