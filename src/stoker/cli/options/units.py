"""Times and sizes with units: "10s", "256MiB"; a number alone has the unit of its field."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from types import MappingProxyType

from stoker.errors import InvalidArgumentError

# No exponents and no underscores, which `Decimal` accepts and users do not mean.
_NUMBER = re.compile(r"(-?[0-9]{1,15}(?:\.[0-9]{1,15})?) ?([A-Za-z]*)")

_DAY_MS = 86_400_000


class OptionError(InvalidArgumentError):
    """A flag, a variable or a key of the configuration file is not valid."""


@dataclass(frozen=True)
class Quantity:
    """A quantity of the options: its name, its base unit and all its units.

    Attributes:
        name: with its article, for errors.
        base: the unit of a number alone, in words.
        units: for each unit the number of base units, from the smallest to the largest.
        examples: valid forms, for errors.
    """

    name: str
    base: str
    units: Mapping[str, int]
    examples: str

    def parse(self, text: str) -> int:
        """Return the number of base units, such as 10_000 for "10s" and for "10000".

        Raises:
            OptionError: if `text` is not a quantity, or has a unit that is ambiguous.
        """
        match = _NUMBER.fullmatch(text.strip())
        # -1 alone switches some times off; a negative time with a unit means nothing.
        if match is None or (match[2] and match[1].startswith("-")):
            raise OptionError(f"{text!r} is not {self.name}; {self._forms}")
        # With floats, 1.005 s would be 1004.9999999999999 ms.
        number, unit = Decimal(match[1]), match[2]
        if unit and unit not in self.units:
            raise OptionError(f"{text!r} is not {self.name}: {self._refuse(match[1], unit)}")
        value = number * self.units.get(unit, 1)
        if value % 1:
            raise OptionError(f"{text!r} is not a whole number of {self.base}; {self._forms}")
        return int(value)

    def format(self, value: int) -> str:
        """Return `value` with the largest unit of which it is a whole number.

        Example:
            >>> TIME.format(600_000), TIME.format(-1), SIZE.format(10 << 30)
            ('10min', '-1', '10GiB')
        """
        # 0 and -1 are no quantities: both switch something off.
        if value <= 0:
            return str(value)
        factor, unit = max((x, unit) for unit, x in self.units.items() if value % x == 0)
        return f"{value // factor}{unit}"

    def _refuse(self, number: str, unit: str) -> str:
        """Return the reason why `unit` is none, with the units that may be meant."""
        # "5m" may mean minutes or milliseconds: a guess could be wrong by a factor of 60,000.
        near = [known for known in self.units if known[0].lower() == unit[0].lower()]
        if not near or any(unit in quantity.units for quantity in (TIME, SIZE)):
            return f"it has no unit {unit!r}; {self._forms}"
        meant = " or ".join(f'"{number}{known}"' for known in near)
        return f"the unit {unit!r} is ambiguous or unknown; write {meant}"

    @property
    def _forms(self) -> str:
        return f"write a number of {self.base}, or one with a unit: {self.examples}"


TIME = Quantity(
    "a time",
    "milliseconds",
    MappingProxyType({"ms": 1, "s": 1000, "min": 60_000, "h": 3_600_000}),
    '"500ms", "10s", "2min", "1h"',
)

SIZE = Quantity(
    "a size",
    "bytes",
    MappingProxyType(
        {"B": 1}
        | {f"{prefix}B": 1000**power for power, prefix in enumerate("kMGT", 1)}
        | {f"{prefix}iB": 1024**power for power, prefix in enumerate("KMGT", 1)}
    ),
    '"64kB", "1GB" (powers of 1000), "64KiB", "256MiB", "1GiB" (powers of 1024)',
)


def with_unit(text: str, unit: str) -> str:
    """Return a number alone with `unit`, and any other text as it is."""
    return f"{text}{unit}" if re.fullmatch(r"[0-9.]+", text.strip()) else text


def parse_seconds(text: str) -> float:
    """Return the seconds of "2s", "500ms", "1min" or "2".

    Raises:
        OptionError: if `text` is not a positive time, or more than a day.
    """
    milliseconds = TIME.parse(with_unit(text, "s"))
    if not 0 < milliseconds <= _DAY_MS:
        raise OptionError(f"{text!r} is not a positive time of at most a day, such as 2s or 500ms")
    return milliseconds / 1000
