"""Nested elements: tuples, lists, dicts, namedtuples, dataclasses and attrs classes of leaves."""

import dataclasses
import functools
from collections import namedtuple
from collections.abc import Callable, Iterable, Iterator, Sequence
from enum import Enum
from functools import partial
from itertools import starmap
from typing import Any


class Container(Enum):
    """Kind of container that a class is; a leaf is none."""

    LEAF = "leaf"
    TUPLE = "tuple"
    LIST = "list"
    DICT = "dict"
    NAMEDTUPLE = "namedtuple"
    DATACLASS = "dataclass"


def _container_of(cls: type) -> Container:
    """Return the kind of container that `cls` is; a class that is none of the five is a leaf.

    An attrs class is a dataclass here. A dataclass with a true `__stoker_leaf__` attribute
    (RaggedArray, TensorSpec) is a leaf.
    """
    if issubclass(cls, tuple):
        return Container.NAMEDTUPLE if hasattr(cls, "_fields") else Container.TUPLE
    if issubclass(cls, list):
        return Container.LIST
    if issubclass(cls, dict):
        return Container.DICT
    is_record = dataclasses.is_dataclass(cls) or hasattr(cls, "__attrs_attrs__")
    if is_record and not getattr(cls, "__stoker_leaf__", False):
        return Container.DATACLASS
    return Container.LEAF


# By assignment: mypy considers `type[...]` unhashable where lru_cache decorates.
container_of: Callable[[type], Container] = functools.lru_cache(maxsize=4096)(_container_of)


def _field_names(cls: type) -> tuple[str, ...]:
    """Return the fields of a namedtuple or dataclass, in order."""
    if container_of(cls) is Container.NAMEDTUPLE:
        names: tuple[str, ...] = cls._fields  # type: ignore[attr-defined]
        return names
    attributes = getattr(cls, "__attrs_attrs__", None)
    fields = dataclasses.fields(cls) if attributes is None else attributes
    return tuple(field.name for field in fields)


field_names: Callable[[type], tuple[str, ...]] = functools.lru_cache(maxsize=4096)(_field_names)


def is_leaf(value: Any) -> bool:
    """Return True for a value that is not a container."""
    return container_of(type(value)) is Container.LEAF


def children(value: Any) -> list[tuple[str, Any]]:
    """Return a container's members, each with its accessor: ``[0]``, ``['image']``, ``.x``."""
    container = container_of(type(value))
    if container is Container.DICT:
        return [(f"[{key!r}]", member) for key, member in value.items()]
    if container is Container.DATACLASS or container is Container.NAMEDTUPLE:
        return [(f".{name}", getattr(value, name)) for name in field_names(type(value))]
    return [(f"[{i}]", member) for i, member in enumerate(value)]


def members_of(value: Any) -> list[Any]:
    """Return a container's members in a new list."""
    return list(_members(value, container_of(type(value))))


def _members(value: Any, container: Container) -> Sequence[Any]:
    if container is Container.DICT:
        return list(value.values())
    if container is Container.DATACLASS:
        return [getattr(value, name) for name in field_names(type(value))]
    return value  # type: ignore[no-any-return]


def rebuild(value: Any, members: Sequence[Any]) -> Any:
    """Return a container like `value` (class, keys) with these members, in its order.

    Dataclasses are made without `__init__`, which may reject specs.
    """
    cls = type(value)
    container = container_of(cls)
    if container is Container.TUPLE:
        return tuple(members)
    if container is Container.LIST:
        return list(members)
    if container is Container.DICT:
        return dict(zip(value, members, strict=True))
    if container is Container.NAMEDTUPLE:
        return tuple.__new__(cls, members)
    return make_dataclass_instance(cls, members)


def make_dataclass_instance(cls: type, members: Sequence[Any]) -> Any:
    """Return a dataclass instance with these field values, in order; `__init__` is not called."""
    instance: Any = object.__new__(cls)
    for name, member in zip(field_names(cls), members, strict=True):
        # A frozen dataclass refuses setattr.
        object.__setattr__(instance, name, member)
    return instance


def flatten(value: Any) -> list[Any]:
    """Return the leaves of `value`, depth first, dicts in their own order."""
    container = container_of(type(value))
    if container is Container.LEAF:
        return [value]
    leaves: list[Any] = []
    for member in _members(value, container):
        if container_of(type(member)) is Container.LEAF:
            leaves.append(member)
        else:
            leaves.extend(flatten(member))
    return leaves


def leaf_names(value: Any) -> list[str]:
    """Return each leaf's accessor, in the order of `flatten`: ``['image']``, ``[0].x``, ``""``."""
    if is_leaf(value):
        return [""]
    return [name + rest for name, member in children(value) for rest in leaf_names(member)]


def pack_like(template: Any, leaves: Sequence[Any]) -> Any:
    """Return the structure of `template` with these leaves: the inverse of `flatten`."""
    source = iter(leaves)
    packed = _pack(template, source)
    if next(source, _END) is not _END:
        raise ValueError(f"{len(leaves)} leaves are too many for {template!r}")
    return packed


def packer(template: Any) -> Callable[[Sequence[Any]], Any]:
    """Return ``partial(pack_like, template)``, faster for templates without nesting."""
    if is_leaf(template):
        return lambda leaves: leaves[0]
    if all(is_leaf(member) for _, member in children(template)):
        return partial(rebuild, template)
    return partial(pack_like, template)


_END = object()


def _pack(template: Any, source: Iterator[Any]) -> Any:
    container = container_of(type(template))
    if container is Container.LEAF:
        return next(source)
    members = [_pack(member, source) for member in _members(template, container)]
    return rebuild(template, members)


def map_structure(function: Callable[..., Any], value: Any, *others: Any) -> Any:
    """Replace each leaf of `value` by ``function(leaf, *leaves of others at the same place)``.

    Raises:
        ValueError: if the structure of another value differs.
    """
    if not others:
        container = container_of(type(value))
        if container is Container.LEAF:
            return function(value)
        members = _members(value, container)
        return rebuild(value, [map_structure(function, member) for member in members])
    for other in others:
        if not same_structure(value, other):
            raise ValueError(f"the structures differ: {value!r} and {other!r}")
    rows = zip(flatten(value), *(flatten_like(value, other) for other in others), strict=True)
    return pack_like(value, [function(*row) for row in rows])


def flatten_like(template: Any, value: Any) -> list[Any]:
    """Return the leaves of `value` in the order of those of `template`.

    `value` must have the structure of `template`; the order of its dicts' keys may differ.
    """
    container = container_of(type(template))
    if container is Container.LEAF:
        return [value]
    pairs = member_pairs(template, value)
    return [leaf for member, other in pairs for leaf in flatten_like(member, other)]


def member_pairs(a: Any, b: Any) -> Iterable[tuple[Any, Any]]:
    """Return each member of `a` with that of `b`, for which `same_container` is true."""
    container = container_of(type(a))
    if container is Container.DICT:
        return [(member, b[key]) for key, member in a.items()]
    return zip(_members(a, container), _members(b, container), strict=True)


def same_structure(a: Any, b: Any) -> bool:
    """Return whether containers, keys (in any order), class and field names are the same."""
    if is_leaf(a):
        return is_leaf(b)
    return same_container(a, b) and all(starmap(same_structure, member_pairs(a, b)))


def same_container(a: Any, b: Any) -> bool:
    """Return whether `a` and `b` are leaves, or differ in nothing but their members."""
    container = container_of(type(a))
    if container is not container_of(type(b)):
        return False
    if container is Container.DICT:
        return bool(a.keys() == b.keys())
    if container in (Container.NAMEDTUPLE, Container.DATACLASS):
        return _same_class(type(a), type(b))
    return container is Container.LEAF or len(a) == len(b)


def _same_class(a: type, b: type) -> bool:
    # By name: the class generated for received elements is not the user's class object.
    return a is b or (a.__name__ == b.__name__ and field_names(a) == field_names(b))


@functools.lru_cache(maxsize=1024)
def generated_class(container: Container, name: str, fields: tuple[str, ...]) -> type:
    """Return a class for namedtuples or dataclasses whose own class is unknown; cached."""
    # The module of the class is this one, by which `is_generated` recognizes the class.
    if container is Container.NAMEDTUPLE:
        return namedtuple(name, fields, module=__name__)  # noqa: PYI024
    return dataclasses.make_dataclass(name, fields, namespace={"__module__": __name__})


def is_generated(cls: type) -> bool:
    """Return whether a class comes from `generated_class`."""
    return cls.__module__ == __name__
