"""Read the journal of an object store into an unnamed temporary file.

A dispatcher that is being replaced may still delete the groups that its last snapshot replaces.
The reader then lists again, which is possible only before the content is in use.
"""

import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, cast

import msgspec

from stoker.service.journal.blocks import (
    BlockKind,
    JournalBlock,
    damaged,
    decode_block,
    parts_of,
    units_of,
)
from stoker.service.journal.object_names import (
    ObjectListing,
    group_name,
    parse_names,
    part_name,
)
from stoker.service.journal.objects import Objects
from stoker.service.journal.store import JournalHistory

_MEMORY_BYTES = 64 << 20


class SnapshotHead(msgspec.Struct, frozen=True):
    """Content of the object that completes a snapshot.

    Attributes:
        covered: number of the last group that it replaces, and position of its last unit.
        part_blocks: number of blocks of parts.
        nbytes: their size.
        boots: numbers of the groups that are the last boots up to `covered`.
    """

    covered: tuple[int, int]
    part_blocks: int
    nbytes: int
    boots: tuple[int, ...]


_NO_SNAPSHOT = SnapshotHead((0, 0), 0, 0, ())


class VanishedError(Exception):
    """An object was deleted after it was listed."""


@dataclass
class Fetched:
    """Blocks of a journal, copied from an object store.

    Attributes:
        head: describes the snapshot.
        last: number of the last group, and position of its last unit.
        boots: numbers of the groups that are boots, among the last ones.
        unit_bytes: size of the groups behind the snapshot.
    """

    url: str
    head: SnapshotHead = _NO_SNAPSHOT
    last: tuple[int, int] = (0, 0)
    boots: list[int] = field(default_factory=list)
    unit_bytes: int = 0

    def __post_init__(self) -> None:
        # In a file, because the history may be larger than memory; unnamed, so that the kernel
        # deletes it with the process.
        file = tempfile.SpooledTemporaryFile(_MEMORY_BYTES)  # noqa: SIM115 - has `close`
        self._file = cast(BinaryIO, file)
        self._parts: list[tuple[int, int]] = []
        self._groups: list[tuple[int, int]] = []

    def history(self) -> JournalHistory:
        """Return the content."""
        parts = parts_of(self._blocks(self._parts), self.url, self.head.part_blocks)
        groups = self._blocks(self._groups)
        return JournalHistory(parts, units_of(groups, self.url, self.head.covered, self.last))

    def add_parts(self, data: bytes) -> None:
        """Append a block of parts."""
        self._parts.append(self._write(data))

    def add_group(self, data: bytes) -> None:
        """Append the group that follows `last`, after a check.

        Raises:
            DataLossError: if it is damaged or another group.
        """
        number, position = self.last
        name = f"{self.url}/{group_name(number + 1)}"
        block = decode_block(data, name)
        last = (number + 1, position + len(block.items))
        for _ in units_of([block], name, self.last, last):
            pass
        if block.kind is BlockKind.BOOT:
            self.boots.append(block.number)
        self.last = last
        self.unit_bytes += len(data)
        self._groups.append(self._write(data))

    def close(self) -> None:
        """Remove the copy; idempotent."""
        self._file.close()

    def _write(self, data: bytes) -> tuple[int, int]:
        start = self._file.seek(0, 2)
        self._file.write(data)
        return start, len(data)

    def _blocks(self, places: list[tuple[int, int]]) -> Iterator[JournalBlock]:
        for start, size in places:
            self._file.seek(start)
            yield decode_block(self._file.read(size), self.url)


def fetch(objects: Objects, upto: int | None = None) -> Fetched:
    """Return the journal, up to group `upto`.

    Raises:
        DataLossError: if it is damaged.
        FailedPreconditionError: if another program or a newer stoker has written there.
        StokerError: as the methods of `Objects`.
    """
    names: list[str] | None = None
    while True:
        before, names = names, sorted(objects.names())
        fetched = Fetched(objects.url)
        try:
            listing = parse_names(names, objects.url)
            _fetch_snapshot(objects, fetched, listing)
            extend(objects, fetched, listing, upto)
        except VanishedError as error:
            fetched.close()
            if names == before:  # nobody deletes: the object was missing before
                raise damaged(objects.url, f"{error} is missing") from None
        except BaseException:
            fetched.close()
            raise
        else:
            return fetched


def _fetch_snapshot(objects: Objects, fetched: Fetched, listing: ObjectListing) -> None:
    snapshot = listing.last_snapshot()
    if snapshot is None:
        return
    (data,) = _read(objects, [snapshot])
    name = f"{objects.url}/{snapshot}"
    block = decode_block(data, name)
    if block.kind is not BlockKind.HEAD or block.number != listing.snapshots[snapshot]:
        raise damaged(name, "it does not describe its snapshot")
    fetched.head = msgspec.msgpack.decode(block.items[0], type=SnapshotHead)
    fetched.last = fetched.head.covered
    fetched.boots = list(fetched.head.boots)
    count = fetched.head.part_blocks
    for part in _read(objects, [part_name(snapshot, number) for number in range(count)]):
        fetched.add_parts(part)
    # Check the order now: later the objects may be deleted and could not be fetched again.
    for _ in parts_of(fetched._blocks(fetched._parts), name, count):
        pass


def extend(
    objects: Objects, fetched: Fetched, listing: ObjectListing, upto: int | None = None
) -> None:
    """Append the groups of `listing` behind those that were fetched.

    Raises:
        VanishedError: if one is missing.
        DataLossError: if one is damaged.
    """
    first = fetched.last[0] + 1
    end = max(listing.groups, default=0) if upto is None else upto
    for group in _read(objects, [group_name(number) for number in range(first, end + 1)]):
        fetched.add_group(group)


def _read(objects: Objects, names: list[str]) -> Iterator[bytes]:
    for name, data in zip(names, objects.read(names), strict=True):
        if data is None:
            raise VanishedError(name)
        yield data
