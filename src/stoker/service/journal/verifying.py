"""Checks that blocks are those that a journal expects, in order and without a gap."""

from collections.abc import Iterable, Iterator

from stoker.service.journal.blocks import Block, Kind, damaged


def units_of(
    blocks: Iterable[Block], name: str, after: tuple[int, int], last: tuple[int, int]
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
        if block.number != number or block.first != position + 1:
            raise damaged(name, f"block {number} with unit {position + 1} is missing")
        if block.kind not in (Kind.UNITS, Kind.BOOT):
            raise damaged(name, f"block {number} contains no units")
        yield from block.items
        position += len(block.items)
    if (number, position) != last:
        raise damaged(name, f"it ends with unit {position}, and has recorded {last[1]}")


def parts_of(blocks: Iterable[Block], name: str, count: int) -> Iterator[bytes]:
    """Yield the parts of a snapshot from its `count` blocks.

    Raises:
        DataLossError: if a block is missing or out of place.
    """
    number = 0
    for block in blocks:
        if block.number != number or block.kind is not Kind.PARTS:
            raise damaged(name, f"block {number} of the snapshot is missing")
        yield from block.items
        number += 1
    if number != count:
        raise damaged(name, f"the snapshot has {number} blocks, and {count} were recorded")
