"""Namedtuples and dataclasses: described by name and fields, rebuilt from known classes.

The peer never names a class to import. A reader with an element_spec gets the classes in it; for a
description that matches none of them, a class is generated.
"""

import keyword
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Literal, TypeAlias

from stoker.elements.structure import (
    Container,
    children,
    container_of,
    field_names,
    generated_class,
    is_generated,
)
from stoker.errors import WireError

Kind: TypeAlias = Literal["namedtuple", "dataclass"]
Description: TypeAlias = tuple[Kind, str, tuple[str, ...]]

_KINDS: dict[Container, Kind] = {
    Container.NAMEDTUPLE: "namedtuple",
    Container.DATACLASS: "dataclass",
}


def describe(cls: type) -> Description | None:
    """Return the encoded form of `cls`; None if it is neither a namedtuple nor a dataclass."""
    kind = _KINDS.get(container_of(cls))
    return None if kind is None else (kind, cls.__name__, field_names(cls))


# The peer never names a class: a trainer rebuilds elements with its own classes, and unpickles
# nothing. (docs/decisions/068)
class TypeResolver:
    """Finds the class for a description: one of the reader's, else a generated one.

    Args:
        element_spec: the reader's structure; only the classes of its containers matter.
        classes: other classes of the reader's program, or a function that returns them, called when
            one is needed; of several with one description, none.

    Example:
        >>> import urllib.parse
        >>> url = urllib.parse.urlsplit("tcp://host")  # a namedtuple
        >>> types = TypeResolver({"where": url})
        >>> types.resolve("namedtuple", "SplitResult", url._fields)
        <class 'urllib.parse.SplitResult'>
        >>> types.resolve("namedtuple", "Point", ("x", "y"))(1, 2)
        Point(x=1, y=2)
    """

    def __init__(
        self,
        element_spec: Any = None,
        classes: Iterable[type] | Callable[[], Iterable[type]] = (),
    ) -> None:
        self._known: dict[Description, type] = {}
        for cls in record_classes_of(element_spec):
            description = describe(cls)
            if description is not None:
                self._known.setdefault(description, cls)
        self._classes = classes if callable(classes) else lambda: classes

    @cached_property
    def _others(self) -> dict[Description, type]:
        # Found at the first description that the element_spec does not name: the function
        # that returns the classes pickles the functions of the user.
        others: dict[Description, set[type]] = {}
        for cls in self._classes():
            description = describe(cls)
            if description is not None:
                others.setdefault(description, set()).add(cls)
        return {found: classes.pop() for found, classes in others.items() if len(classes) == 1}

    def resolve(self, kind: Kind, name: str, fields: tuple[str, ...]) -> type:
        """Return the class for a description from a peer.

        Raises:
            WireError: if no class can have these fields.
        """
        description = (kind, name, fields)
        if description in self._known:
            return self._known[description]
        return self._others.get(description) or _generate(kind, name, fields)


def record_classes_of(spec: Any) -> Iterator[type]:
    """Yield the classes of the containers in an element_spec, outermost first.

    Generated ones are left out: the spec came from a store or a peer, which named no class.
    """
    if container_of(type(spec)) is not Container.LEAF:
        if not is_generated(type(spec)):
            yield type(spec)
        for _, child in children(spec):
            yield from record_classes_of(child)


def _generate(kind: Kind, name: str, fields: tuple[str, ...]) -> type:
    for field in fields:
        private = field.startswith("_" if kind == "namedtuple" else "__")
        if not field.isidentifier() or keyword.iskeyword(field) or private:
            raise WireError(f"a {kind} cannot have a field {field!r:.100}")
    if len(set(fields)) < len(fields):
        raise WireError(f"a {kind} with the fields {fields!r:.200}")
    if not name.isidentifier() or keyword.iskeyword(name) or name.startswith("__"):
        name = "Record"
    return generated_class(Container(kind), name, fields)
