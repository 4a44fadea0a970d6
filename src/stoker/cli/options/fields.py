"""Options of a command, read from the dataclasses that it configures."""

import dataclasses
import inspect
import re
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from stoker.cli.options.units import SIZE, TIME, Quantity


@dataclass(frozen=True)
class Alias:
    """Another, shorter flag of an option; it is no variable and no key.

    Attributes:
        name: the flag's name, as a field's.
        unit: unit of a number alone, if it is not that of the option.
    """

    name: str
    unit: str = ""

    @property
    def flag(self) -> str:
        return flag_of(self.name)


@dataclass(frozen=True)
class Option:
    """One option: a flag ``--some-name``, a variable ``STOKER_SOME_NAME``, a key ``some_name``.

    Attributes:
        name: the name of the field.
        type: `bool`, `int`, `str` or `list`.
        quantity: units of an int that is a time or a size.
        required: True if it has no default.
        default: the default, or `None` if there is none to show.
        help: text of the docstring's "Attributes".
        choices: the values that exist, if there are few.
        shown: the default in words, if it depends on other options.
        alias: another flag.
    """

    name: str
    type: type
    quantity: Quantity | None
    required: bool
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    shown: str = ""
    alias: Alias | None = None

    @property
    def flag(self) -> str:
        return flag_of(self.name)

    @property
    def negation(self) -> str:
        """Name of the flag that turns a bool off."""
        return f"no_{self.name}"

    @property
    def variable(self) -> str:
        return f"STOKER_{self.name.upper()}"

    @property
    def shown_default(self) -> str:
        """The default as a user would write it; empty if there is none."""
        if self.shown or self.default in (None, []):
            return self.shown
        if self.quantity is not None:
            return self.quantity.format(self.default)
        return str(self.default).lower() if self.type is bool else str(self.default)


def flag_of(name: str) -> str:
    """Return the flag of a name, such as ``--work-dir`` of ``work_dir``."""
    return f"--{name.replace('_', '-')}"


def options_of(cls: type, differences: Mapping[str, Mapping[str, Any]]) -> list[Option]:
    """Return the options of the fields of a dataclass, in its order.

    Args:
        cls: the dataclass.
        differences: for each name of a field the attributes of its option that differ from it.
    """
    annotations = typing.get_type_hints(cls)
    texts = attribute_texts(cls)
    found = []
    for field in dataclasses.fields(cls):
        default = _default(field)
        required = default is dataclasses.MISSING
        option = Option(
            name=field.name,
            type=_type(annotations[field.name]),
            quantity=_quantity(field.name),
            required=required,
            default=None if required else default,
            help=texts.get(field.name, ""),
            choices=_literal(annotations[field.name]),
        )
        found.append(dataclasses.replace(option, **differences.get(field.name, {})))
    return found


def attribute_texts(cls: type) -> dict[str, str]:
    """Return the text of each attribute in the "Attributes" of a docstring; none under ``-OO``."""
    text = inspect.cleandoc(cls.__doc__ or "").partition("Attributes:\n")[2]
    entries = re.findall(r"^    (\w+): (.*(?:\n     .*)*)", text, re.MULTILINE)
    return {name: " ".join(entry.split()) for name, entry in entries}


def _default(field: "dataclasses.Field[Any]") -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def _quantity(name: str) -> Quantity | None:
    if name.endswith("_ms"):
        return TIME
    return SIZE if name.endswith("_bytes") else None


def _type(annotation: Any) -> type:
    """Return the type of a value, without `None` and the type of a list's entries."""
    if isinstance(annotation, types.UnionType):
        [annotation] = [each for each in typing.get_args(annotation) if each is not types.NoneType]
    if _literal(annotation):
        return str
    found = typing.get_origin(annotation) or annotation
    assert found in {bool, int, str, list}, f"no option can have the type {annotation}"
    return typing.cast(type, found)


def _literal(annotation: Any) -> tuple[str, ...]:
    is_literal = typing.get_origin(annotation) is typing.Literal
    return typing.get_args(annotation) if is_literal else ()
