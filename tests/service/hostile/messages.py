"""Random messages that are well-formed, drawn from the msgspec types of the messages.

A new message or field needs no line here. Values are drawn most often from those that the peer has
sent under the same field name or type, so that ids, keys and positions mostly exist.
"""

import dataclasses
import functools
import random
from collections import defaultdict, deque
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import msgspec
from msgspec import inspect as types

INTS = [0, -1, 2**63 - 1, 2**64 - 1, -(2**63), 2**62]
STRINGS = ["", "x" * 20_000, "no such", "é\0"]
BYTES = [b"", b"x" * 20_000, bytes(16)]
FLOATS = [0.0, -1.0, 1e308, float("inf"), float("nan")]
_BUILTINS: dict[type, type] = {types.IntType: int, types.StrType: str, types.BytesType: bytes}

REMEMBERED = 6
"""Values kept of each field; few, so that messages concern the same things."""


@functools.cache
def members(union: Any) -> list[type]:
    """Return the structs of a union."""
    info = types.type_info(union)
    found = info.types if isinstance(info, types.UnionType) else (info,)
    return [x.cls for x in found if isinstance(x, types.StructType)]


@functools.cache
def _fields(kind: type) -> Any:
    return types.type_info(kind).fields  # type: ignore[attr-defined]


def fits(info: Any, value: Any) -> bool:
    """Return whether a value is within the bounds of its type."""
    if not isinstance(info, types.IntType):
        return True
    return (info.ge is None or value >= info.ge) and (info.le is None or value <= info.le)


def limits(info: Any) -> list[Any]:
    """Return the values of a type at its limits; those of a struct are made by `Messages`."""
    match info:
        case types.IntType():
            bounds = [x for x in (info.ge, info.le) if x is not None]
            return [*bounds, *(x for x in INTS if fits(info, x))]
        case types.StrType():
            return STRINGS
        case types.BytesType():
            return BYTES
        case types.FloatType():
            return FLOATS
        case types.BoolType():
            return [False, True]
        case types.NoneType():
            return [None]
        case types.EnumType():
            return list(info.cls)
        case types.RawType():
            valid = [msgspec.Raw(msgspec.msgpack.encode(x)) for x in ANYTHING]
            return [*valid, msgspec.Raw(b"\x91\xa1\xff")]  # no UTF-8
    return ANYTHING


ANYTHING: list[Any] = [None, -1, "", [], {}, [1, [2]], {"a": None}]


def _replaced(value: Any, fields: dict[str, Any]) -> Any:
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **fields)
    if isinstance(value, tuple):
        return value._replace(**fields)  # type: ignore[attr-defined]
    return dataclasses.replace(value, **fields)


class Messages:
    """Draw messages.

    Args:
        rng: the source of randomness.
        honest: messages that fit the peer, from which most messages of their types are derived.
    """

    def __init__(self, rng: random.Random, honest: list[Any]) -> None:
        self._rng = rng
        self._honest: defaultdict[type, list[Any]] = defaultdict(list)
        self._seen: defaultdict[Any, deque[Any]] = defaultdict(lambda: deque(maxlen=REMEMBERED))
        for message in honest:
            self._honest[type(message)].append(message)
            self.learn(message)

    def learn(self, value: Any, name: str = "") -> None:
        """Remember the values of a message of the peer, by field name and by type."""
        if isinstance(value, msgspec.Struct) or dataclasses.is_dataclass(value):
            self._remember(type(value), value)
            kind: Any = type(value)
            for field in _fields(kind):
                self.learn(getattr(value, field.name), field.name)
        elif isinstance(value, dict):
            for key, item in value.items():
                self.learn(key, name)
                self.learn(item, name)
        elif isinstance(value, list | tuple):
            for item in value:
                self.learn(item, name)
        elif isinstance(value, int | str | bytes) and not isinstance(value, bool):
            self._remember((name, type(value)), value)
            if isinstance(value, int) and value > 1 << 32:  # an id
                self._remember(int, value)

    def _remember(self, key: Any, value: Any) -> None:
        if value not in self._seen[key]:
            self._seen[key].append(value)

    def message(self, kind: type) -> Any:
        """Return a message of a type."""
        honest = self._honest[kind]
        fields = _fields(kind)
        if not honest or self._rng.random() < 0.2:
            return self._of_fields(kind, fields)
        changed = self._rng.sample(fields, min(len(fields), self._rng.choice([0, 0, 1, 1, 2, 3])))
        values = {field.name: self._draw(field.type, field.name) for field in changed}
        return msgspec.structs.replace(self._rng.choice(honest), **values)

    def at_limits(self, kind: type) -> Iterator[Any]:
        """Yield a message for each field, also of its parts, and each of the field's limits."""
        for field in _fields(kind):
            for value in self._limits(field.type, field.name):
                base = self._honest[kind] or [self.message(kind)]
                yield msgspec.structs.replace(self._rng.choice(base), **{field.name: value})

    def _limits(self, info: Any, name: str) -> Iterator[Any]:
        match info:
            case types.UnionType():
                for each in info.types:
                    yield from self._limits(each, name)
            case types.StructType() | types.DataclassType() | types.NamedTupleType():
                for field in info.fields:
                    for value in self._limits(field.type, field.name):
                        part = self._of_fields(info.cls, info.fields)
                        with suppress(ValueError):
                            yield _replaced(part, {field.name: value})
            case _:
                yield from self._limits_of_items(info, name)

    def _limits_of_items(self, info: Any, name: str) -> Iterator[Any]:
        match info:
            case types.ListType() | types.VarTupleType():
                yield []
                for item in self._limits(info.item_type, name):
                    yield [item]
                yield [self._draw(info.item_type, name)] * 1000
            case types.TupleType():
                for index, item_type in enumerate(info.item_types):
                    for item in self._limits(item_type, name):
                        values = [self._draw(x, name) for x in info.item_types]
                        yield (*values[:index], item, *values[index + 1 :])
            case types.DictType():
                yield {}
                for key in self._limits(info.key_type, name):
                    yield {key: self._draw(info.value_type, name)}
                for item in self._limits(info.value_type, name):
                    yield {self._draw(info.key_type, name): item}
            case _:
                yield from limits(info)

    def _of_fields(self, cls: type, fields: Any) -> Any:
        while True:
            values = {field.name: self._draw(field.type, field.name) for field in fields}
            with suppress(ValueError):  # values that the type refuses, also when it is decoded
                return cls(**values)

    def _draw(self, info: Any, name: str) -> Any:
        rng = self._rng
        match info:
            case types.UnionType():
                return self._draw(rng.choice(info.types), name)
            case types.ListType() | types.VarTupleType():
                return [self._draw(info.item_type, name) for _ in range(rng.choice([0, 1, 1, 2]))]
            case types.TupleType():
                return tuple(self._draw(x, name) for x in info.item_types)
            case types.DictType():
                keys = [self._draw(info.key_type, name) for _ in range(rng.choice([0, 1, 1, 2]))]
                return {key: self._draw(info.value_type, name) for key in keys}
            case types.StructType() | types.DataclassType() | types.NamedTupleType():
                if (seen := self._seen.get(info.cls)) and rng.random() < 0.5:
                    return rng.choice(seen)
                return self._of_fields(info.cls, info.fields)
        kind = _BUILTINS.get(type(info))
        same_name = self._seen.get((name, kind), ())
        others = (self._seen.get(int, ()), range(4)) if kind is int else ()
        seen = rng.choice([*[same_name] * 4, *others])
        if seen and rng.random() < 0.95 and fits(info, value := rng.choice(seen)):
            return value
        return rng.choice(limits(info))
