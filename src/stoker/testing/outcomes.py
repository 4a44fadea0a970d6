"""Outcomes of reads as digests and short texts, which processes can send and compare."""

import hashlib
import itertools
import re
from collections.abc import Iterator
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from stoker.dataset.tree.node import is_dataset
from stoker.elements.brief import brief
from stoker.elements.foreign import array_of, is_foreign_array
from stoker.elements.structure import children, is_leaf

_SHOWN = 6
"""Most values of an array that its text names."""

_ADDRESS = re.compile(r"0x[0-9a-f]+")

_NUMBERS = (bool, int, float, complex, str, bytes, type(None))


class Part(NamedTuple):
    """A container or a leaf of an element.

    Attributes:
        kind: name of the class.
        digest: of the value of a leaf.
        text: for messages.
    """

    kind: str
    digest: bytes
    text: str


Outcome: TypeAlias = dict[str, Part]
"""The parts of an element by their accessors, such as ``['x'][0]``; an error or the end is one."""

END: Outcome = {"": Part("end", b"", "the end of the epoch")}


def outcome_of(element: Any) -> Outcome:
    """Return the outcome of a read that yielded an element."""
    return dict(_parts_of(element, ""))


def outcome_of_error(error: Exception) -> Outcome:
    """Return the outcome of a read that raised; addresses of objects in the text do not count."""
    text = _ADDRESS.sub("0x", f"{type(error).__name__}: {error}")
    return {"": Part("error", text.encode(errors="backslashreplace"), text)}


def is_error(outcome: Outcome) -> bool:
    """Return whether a read raised."""
    return outcome.get("", END[""]).kind == "error"


def difference(expected: Outcome, found: Outcome) -> tuple[str, str] | None:
    """Return texts of the first parts that differ; ``None`` if the outcomes are equal."""
    for path in sorted(expected.keys() | found.keys()):
        ours, theirs = expected.get(path), found.get(path)
        if ours is None or theirs is None or ours[:2] != theirs[:2]:
            return _shown(path, ours, theirs), _shown(path, theirs, ours)
    return None


def _shown(path: str, part: Part | None, other: Part | None) -> str:
    name = f"{path} is " if path else ""
    if part is None:
        return f"{name}missing"
    if other is None or part.text != other.text:
        return f"{name}{part.text}"
    if part.kind != other.kind:
        return f"{name}{part.text}, a {part.kind}"
    return f"{name}{part.text} with the digest {part.digest.hex()}"


def _parts_of(value: Any, path: str) -> Iterator[tuple[str, Part]]:
    kind = type(value).__qualname__
    if is_leaf(value):
        yield path, Part(kind, digest_of(value), _text_of(value))
        return
    members = children(value)
    yield path, Part(kind, b"%d" % len(members), f"a {kind} of {len(members)} members")
    for step, member in members:
        yield from _parts_of(member, path + step)


def _text_of(leaf: Any) -> str:
    if not isinstance(leaf, np.ndarray):
        return brief(leaf)
    shown = [brief(value) for value in leaf.flat[:_SHOWN].tolist()]
    return f"{brief(leaf)}: {', '.join(shown)}{', ...' if leaf.size > _SHOWN else ''}"


def digest_of(value: Any, above: tuple[int, ...] = ()) -> bytes:
    """Return a digest of a value of any class, equal in all processes that have an equal value.

    Args:
        value: the value.
        above: ids of the objects that contain it.
    """
    digest = hashlib.blake2b(digest_size=8)
    for part in _bytes_of(value, above):
        digest.update(b"%d:" % len(part))
        digest.update(part)
    return digest.digest()


def _bytes_of(value: Any, above: tuple[int, ...]) -> Iterator[bytes]:
    cls = type(value)
    yield f"{cls.__module__}.{cls.__qualname__}".encode()
    if cls in _NUMBERS:
        yield repr(value).encode(errors="backslashreplace")
    elif id(value) in above:
        yield b"%d" % above.index(id(value))
    elif isinstance(value, np.ndarray | np.generic):
        yield from _bytes_of_array(np.asarray(value), above)
    elif isinstance(value, type | FunctionType | BuiltinFunctionType | ModuleType):
        yield f"{getattr(value, '__module__', '')}.{_name_of(value)}".encode()
    elif isinstance(value, set | frozenset):  # their order differs between processes
        yield from sorted(digest_of(member) for member in value)
    elif isinstance(value, dict):
        above = (*above, id(value))
        yield from sorted(digest_of(key) + digest_of(x, above) for key, x in value.items())
    else:
        for member in _members_of(value):
            yield from _bytes_of(member, (*above, id(value)))


def _bytes_of_array(array: Any, above: tuple[int, ...]) -> Iterator[bytes]:
    yield f"{array.dtype.str} {array.shape}".encode()
    if array.dtype.names:  # there may be anything between the fields
        for name in array.dtype.names:
            yield from _bytes_of_array(array[name], above)
    elif array.dtype == object:
        for member in array.flat:
            yield from _bytes_of(member, (*above, id(array)))
    else:
        yield array.tobytes()


def _members_of(value: Any) -> list[Any]:
    """Return the values that an object consists of; none of an object that cannot be copied."""
    if isinstance(value, list | tuple):
        return list(value)
    if is_foreign_array(type(value)):
        return [array_of(value, "")]
    if is_dataset(value):
        return list(itertools.islice(value, 1000))
    try:
        reduced = value.__reduce_ex__(4)
    except Exception:  # noqa: BLE001 - a class may raise anything
        return []
    if isinstance(reduced, str):
        return [reduced]
    # Items come as iterators, which are no values.
    return [list(part) if isinstance(part, Iterator) else part for part in reduced]


def _name_of(value: Any) -> str:
    return getattr(value, "__qualname__", None) or str(value.__name__)
