"""Names of the objects of a journal.

``group-0000000000000042`` contains units, or the boot of a dispatcher.
``snapshot-0000000000000041-<writer>-00000`` contains parts of a snapshot of the groups up to 41.
``snapshot-0000000000000041-<writer>`` is written last, and then the snapshot counts.
``probe-<boot>`` exists while a dispatcher opens the journal.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field

from stoker.errors import InvalidConfigError

_NAME = re.compile(
    r"group-(?P<group>\d{16})|snapshot-(?P<covered>\d{16})-[0-9a-f]{16}(?P<part>-\d{5,})?|probe-\w+"
)


def group_name(number: int) -> str:
    """Return the name of a group of units."""
    # Zeros keep the order of numbers in listings that people read.
    return f"group-{number:016}"


def snapshot_name(covered: int, writer: str) -> str:
    """Return the name of the snapshot that `writer` made of the groups up to `covered`."""
    return f"snapshot-{covered:016}-{writer}"


def part_name(snapshot: str, number: int) -> str:
    """Return the name of a block of parts of a snapshot."""
    return f"{snapshot}-{number:05}"


@dataclass
class ObjectListing:
    """Names in a folder.

    Attributes:
        groups: the numbers of the groups.
        snapshots: the names of the complete snapshots, with their last groups.
        parts: the names of blocks of parts, with the last groups of their snapshots.
    """

    groups: set[int] = field(default_factory=set)
    snapshots: dict[str, int] = field(default_factory=dict)
    parts: dict[str, int] = field(default_factory=dict)

    def last_snapshot(self) -> str | None:
        """Return the name of the snapshot that replaces most groups."""
        # Of two writers' snapshots of the same groups any is complete: both read the same groups.
        return max(self.snapshots, key=lambda name: (self.snapshots[name], name), default=None)


def parse_names(names: Iterable[str], url: str) -> ObjectListing:
    """Return the meaning of `names` in the folder at `url`.

    Raises:
        InvalidConfigError: if another program, or a newer stoker, has objects there.
    """
    listing = ObjectListing()
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            raise InvalidConfigError(
                f"{url} contains {name!r}, which is no object of a journal that this stoker knows; "
                "name another `work_dir`"
            )
        if group := match["group"]:
            listing.groups.add(int(group))
        elif covered := match["covered"]:
            names_of = listing.parts if match["part"] else listing.snapshots
            names_of[name] = int(covered)
    return listing
