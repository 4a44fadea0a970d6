"""Blocks: the encoded form of everything that a journal stores.

A block is a header, the sizes of its items and the items. Its CRC covers all of them, so every
changed byte is noticed, and its length is known, so every truncation is.
"""

import struct
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import IntEnum

from stoker.errors import DataLossError, InvalidConfigError

VERSION = 3
"""Version of the format: of blocks, their order and names, and of the records in them."""

_MAGIC = b"stkj"
_HEADER = struct.Struct("<4sHBx8sQQI")
_CRC = struct.Struct("<I")
_BODY = _HEADER.size + _CRC.size


class BlockKind(IntEnum):
    """Content of a block."""

    UNITS = 0
    """Units in the order of their positions."""
    BOOT = 1
    """No items: a dispatcher begins to serve."""
    PARTS = 2
    """Parts of a snapshot."""
    HEAD = 3
    """One item that describes the other blocks of a store or snapshot."""


@dataclass(frozen=True)
class JournalBlock:
    """A block, decoded.

    Attributes:
        kind: the kind of the items.
        boot: identifies the dispatcher that wrote it, 8 bytes.
        number: number of the block among those of its kind in a store or snapshot.
        first: position of the first unit; of a BOOT, of the unit that follows.
        items: units, parts of a snapshot, or the content of a head.
    """

    kind: BlockKind
    boot: bytes
    number: int
    first: int
    items: Sequence[bytes]

    def encode(self) -> bytes:
        """Return the encoded form, which `decode_block` reads."""
        count = len(self.items)
        header = _HEADER.pack(_MAGIC, VERSION, self.kind, self.boot, self.number, self.first, count)
        # One CRC over header and body: a damaged size or position is noticed, too.
        body = struct.pack(f"<{count}I", *map(len, self.items)) + b"".join(self.items)
        return b"".join((header, _CRC.pack(zlib.crc32(body, zlib.crc32(header))), body))


def decode_block(data: bytes, name: str) -> JournalBlock:
    """Return the block that `data` encodes; `name` is its place, for messages.

    Raises:
        DataLossError: if it is damaged, or not a block.
        InvalidConfigError: if a stoker with another version of the format wrote it.
    """
    if len(data) < _BODY:
        raise damaged(name, f"it has {len(data)} bytes, fewer than its header")
    magic, version, kind, boot, number, first, count = _HEADER.unpack_from(data)
    if magic != _MAGIC:
        raise damaged(name, "it does not begin as a block of a journal")
    if version != VERSION:
        # Before the CRC, which another version may compute in another way.
        raise other_version(name, version)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    body = memoryview(data)[_BODY:]
    if zlib.crc32(body, zlib.crc32(data[: _HEADER.size])) != crc:
        raise damaged(name, "its checksum differs")
    start = _BODY + 4 * count
    items = []
    for size in struct.unpack_from(f"<{count}I", data, _BODY):
        items.append(data[start : start + size])
        start += size
    return JournalBlock(BlockKind(kind), boot, number, first, items)


def damaged(name: str, reason: str) -> DataLossError:
    """Return the error for a part of a journal that cannot be read."""
    return DataLossError(
        f"{name} is damaged: {reason}; restore the `work_dir` from a backup, or name an empty "
        "`work_dir`, with which the dispatcher starts without jobs and datasets"
    )


def other_version(name: str, version: int) -> InvalidConfigError:
    """Return the error for another version of the format."""
    return InvalidConfigError(
        f"{name} has version {version} of the journal's format, and this stoker reads {VERSION}; "
        "use the stoker that wrote it, or name an empty `work_dir`"
    )


def units_of(
    blocks: Iterable[JournalBlock], name: str, after: tuple[int, int], last: tuple[int, int]
) -> Iterator[bytes]:
    """Yield the units of `blocks`.

    Args:
        blocks: blocks of units and boots.
        name: the place of the blocks, for messages.
        after: number of the block before the first, and the position that ends it.
        last: the same of the last block.

    Raises:
        DataLossError: if a block is missing or out of place.
    """
    number, position = after
    for block in blocks:
        number += 1
        in_order = (block.number, block.first) == (number, position + 1)
        if not in_order or block.kind not in (BlockKind.UNITS, BlockKind.BOOT):
            raise damaged(name, f"block {number} with unit {position + 1} is missing")
        yield from block.items
        position += len(block.items)
    # SQLite and buckets lose a last row or object without a trace; the head records the end.
    if (number, position) != last:
        raise damaged(name, f"it ends with unit {position}, and has recorded {last[1]}")


def parts_of(blocks: Iterable[JournalBlock], name: str, count: int) -> Iterator[bytes]:
    """Yield the parts of a snapshot from its `count` blocks.

    Raises:
        DataLossError: if a block is missing or out of place.
    """
    number = 0
    for block in blocks:
        if block.number != number or block.kind is not BlockKind.PARTS:
            raise damaged(name, f"block {number} of the snapshot is missing")
        yield from block.items
        number += 1
    if number != count:
        raise damaged(name, f"the snapshot has {number} blocks, and {count} were recorded")


def pack(items: Iterable[bytes], limit: int) -> Iterator[list[bytes]]:
    """Yield `items` in groups of at most `limit` bytes; a larger item is a group alone."""
    group: list[bytes] = []
    size = 0
    for item in items:
        if group and size + len(item) > limit:
            yield group
            group, size = [], 0
        group.append(item)
        size += len(item)
    if group:
        yield group
