"""The dispatcher's state as bytes, which replace the records that led to it.

A snapshot is a list of *parts*, each the encoded list of some entities. What follows from others,
such as counts, is computed anew when it is loaded.
"""

from collections.abc import Iterable, Iterator
from typing import TypeAlias

import msgspec

from stoker.errors import InvalidConfigError, StokerError
from stoker.service.dispatcher.entities.entities import (
    ClientEntry,
    Iteration,
    JobEntry,
    JournalState,
    TaskEntry,
    WorkerEntry,
)
from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo
from stoker.service.dispatcher.state.clients import add_client
from stoker.service.dispatcher.state.iterations import add_iteration
from stoker.service.dispatcher.state.jobs import add_job
from stoker.service.dispatcher.state.records import AnyRecord
from stoker.service.dispatcher.state.splits import PageStored
from stoker.service.dispatcher.state.state import State
from stoker.service.dispatcher.state.tasks import add_task
from stoker.service.dispatcher.state.workers import add_worker

PART_BYTES = 1 << 20
"""Usual size of a part."""


Stored: TypeAlias = (
    JournalState
    | DatasetInfo
    | PageStored
    | WorkerInfo
    | WorkerEntry
    | JobEntry
    | Iteration
    | ClientEntry
    | TaskEntry
)
"""An entity of a snapshot. `WorkerInfo` is a worker that was lost and had tasks that are known."""

_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Stored]).decode
_decode_unit = msgspec.msgpack.Decoder(list[AnyRecord]).decode


def replay(state: State, unit: bytes) -> None:
    """Apply the records of a unit.

    Raises:
        Exception: if they do not fit the state, or cannot be decoded.
    """
    for record in _decode_unit(unit):
        # Not checked again: only records that fit are stored.
        record.apply(state)
    state.history.position += 1


# The size of a snapshot follows what exists, and not what happened. (docs/decisions/048)
def dump(state: State) -> Iterator[bytes]:
    """Return the parts of a snapshot of `state`, which must not change meanwhile."""
    part: list[msgspec.Raw] = []
    size = 0
    for entity in _entities(state):
        encoded = _encode(entity)
        # Encoded once: the size of an entity is known afterwards only.
        part.append(msgspec.Raw(encoded))
        size += len(encoded)
        if size >= PART_BYTES:
            yield _encode(part)
            part, size = [], 0
    yield _encode(part)


def load(parts: Iterable[bytes]) -> State:
    """Return the state of a snapshot; a new one if there are no parts.

    Raises:
        Exception: if it cannot be decoded, or is not complete.
    """
    state = State()
    for part in parts:
        for entity in _decode(part):
            _add(state, entity)
    return state


def _entities(state: State) -> Iterator[Stored]:
    """Yield the entities, each after the entities that it refers to."""
    yield state.history
    yield from state.datasets.values()
    yield from (PageStored(digest, values) for digest, values in state.pages.items())
    yield from state.workers.values()
    known = {task.worker_id: task.worker for task in state.tasks.values()}
    yield from (known[x] for x in sorted(known.keys() - state.workers.keys()))
    yield from state.jobs.values()
    yield from state.iterations.values()
    yield from state.clients.values()
    yield from state.tasks.values()


def _add(state: State, entity: Stored) -> None:
    """Add an entity, and set what follows from the ids and states of entities."""
    match entity:
        case JournalState():
            state.history = entity
        case DatasetInfo():
            state.datasets[entity.dataset_id] = entity
        case PageStored():
            entity.apply(state)
        case WorkerInfo():
            state.lost_workers[entity.worker_id] = entity
        case WorkerEntry():
            add_worker(state, entity)
        case JobEntry():
            add_job(state, entity)
        case Iteration():
            add_iteration(state, entity)
        case ClientEntry():
            add_client(state, entity)
        case TaskEntry():
            add_task(state, entity)


def rebuild(parts: Iterable[bytes], units: Iterable[bytes], name: str = "the journal") -> State:
    """Return the state of a journal: of its snapshot, and the units after it.

    Args:
        parts: the parts of the snapshot.
        units: the units after it.
        name: the place of the journal, for messages.

    Raises:
        InvalidConfigError: if this version of stoker cannot read them.
    """
    try:
        state = load(parts)
        for unit in units:
            replay(state, unit)
    except StokerError:  # of the storage
        raise
    except Exception as error:
        raise InvalidConfigError(
            f"{name} does not hold the records of a dispatcher of this stoker version "
            f"({type(error).__name__}: {error}); start the version that wrote it, or begin with "
            "another `work_dir`"
        ) from error
    return state


def compact(parts: Iterable[bytes], units: Iterable[bytes]) -> Iterator[bytes]:
    """Return the parts of the snapshot that replaces a snapshot and the units after it.

    Raises:
        InvalidConfigError: as `rebuild`.
    """
    return dump(rebuild(parts, units))
