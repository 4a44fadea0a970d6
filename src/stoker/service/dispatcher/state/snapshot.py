"""The dispatcher's state as bytes, which replace the records that led to it.

A snapshot is a list of *parts*, each the encoded list of some entities. What follows from others,
such as counts, is computed anew when it is loaded.
"""

from collections.abc import Iterable, Iterator

import msgspec

from stoker.errors import InvalidConfigError, StokerError
from stoker.service.dispatcher.entities.records import Record
from stoker.service.dispatcher.state.changes import add, apply
from stoker.service.dispatcher.state.state import State, Stored

PART_BYTES = 1 << 20
"""Usual size of a part."""


_encode = msgspec.msgpack.Encoder().encode
_decode = msgspec.msgpack.Decoder(list[Stored]).decode
_decode_unit = msgspec.msgpack.Decoder(list[Record]).decode


def replay(state: State, unit: bytes) -> None:
    """Apply the records of a unit.

    Raises:
        Exception: if they do not fit the state, or cannot be decoded.
    """
    for record in _decode_unit(unit):
        apply(state, record)
    state.history.position += 1


# The size of a snapshot follows what exists, and not what happened. (docs/decisions/048)
def dump(state: State) -> Iterator[bytes]:
    """Return the parts of a snapshot of `state`, which must not change meanwhile."""
    part: list[msgspec.Raw] = []
    size = 0
    for entity in state.entities():
        encoded = _encode(entity)
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
            add(state, entity)
    return state


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
