"""The namedtuple and dataclass classes of a program, which its elements get back from a worker."""

import sys
import typing
from collections.abc import Iterable, Iterator
from typing import Any

from stoker.elements.codec.records import describe


def record_classes_in(value: Any) -> Iterator[type]:
    """Yield the record classes among a class or function, its annotations and nested classes."""
    stack: list[Any] = [value]
    seen: dict[int, Any] = {}
    while stack:
        found = stack.pop()
        if id(found) in seen:
            continue
        seen[id(found)] = found
        if isinstance(found, type):
            is_record = describe(found) is not None
            if is_record:
                yield found
            prefix = f"{found.__qualname__}."
            members = [member for member in vars(found).values() if isinstance(member, type)]
            stack += [member for member in members if member.__qualname__.startswith(prefix)]
            if not is_record:
                continue
        stack += typing.get_args(found) or _annotations(found)


def _annotations(value: Any) -> list[Any]:
    try:
        return list(typing.get_type_hints(value).values())
    except Exception:  # noqa: BLE001 - a string may name anything, and some values have no hints
        return list(getattr(value, "__annotations__", {}).values())


class RecordClasses:
    """Record classes that, unpickled, are the classes of equal name in the modules imported there.

    A class of ``__main__`` is pickled by value. In a spawned process, the program has imported its
    own class, and expects elements of its own class.

    Args:
        classes: the class that a function uses, before the classes that this class refers to.
    """

    def __init__(self, classes: Iterable[type]) -> None:
        # ``@dataclass(slots=True)`` makes a second class, which may refer to the first.
        by_fields: dict[int, type] = {}
        for cls in classes:
            by_fields.setdefault(id(vars(cls).get("__dataclass_fields__", cls)), cls)
        self.classes = tuple(by_fields.values())

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.classes,)


def _restored(classes: tuple[type, ...]) -> RecordClasses:
    return RecordClasses(map(_imported, classes))


def _imported(cls: type) -> type:
    found: Any = sys.modules.get(cls.__module__)
    for name in cls.__qualname__.split("."):
        found = getattr(found, name, None)
    return found if isinstance(found, type) and describe(found) == describe(cls) else cls
