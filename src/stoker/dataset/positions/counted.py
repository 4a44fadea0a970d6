"""Counted datasets: the position of every element is known without computing the element."""

from typing import TypeAlias

import msgspec


class Counted(msgspec.Struct, frozen=True, tag="counted"):
    """The dataset has positions 0 to `length` - 1; `splits.ENDLESS` without end."""

    length: int


class NotCounted(msgspec.Struct, frozen=True, tag="not_counted"):
    """A node prevents that positions are known: `kind` at `site`, because `why`."""

    kind: str
    site: str
    why: str


Positions: TypeAlias = Counted | NotCounted
