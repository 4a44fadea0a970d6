"""A journal in an object store: one immutable object per commit, named by its number.

The next number is the fence: it can be created once. A dispatcher takes over by creating it with
its own boot, and the next commit of the one before finds the number taken. So an older dispatcher's
next number is always the boot of its successor. A compaction keeps the last boots, since a
dispatcher that was frozen for long must not find its next number free again.
"""

import logging
import os
import threading

import msgspec

from stoker.errors import FailedPreconditionError
from stoker.service.journal.blocks import BlockKind, JournalBlock, decode_block, pack
from stoker.service.journal.fetching import Fetched, SnapshotHead, VanishedError, extend, fetch
from stoker.service.journal.object_names import (
    group_name,
    parse_names,
    part_name,
    snapshot_name,
)
from stoker.service.journal.objects import Objects
from stoker.service.journal.store import COMPACTION_BYTES, JournalHistory, Rewrite, Store
from stoker.service.process.clock import Clock

# The fence of an object store is the next number: a dispatcher that was frozen meanwhile must not
# find the number free. (docs/decisions/014)
KEPT_BOOTS = 100
"""A frozen dispatcher is kept out until this many others have started after it."""

COMPACTION_GROUPS = 1_000
_BYTES_PER_GROUP = 100_000
"""To read one more object takes as long as to read this many more bytes."""
_PART_BYTES = 8 << 20

_logger = logging.getLogger("stoker")


class ObjectStore(Store):
    """Keeps a journal in the folder ``journal`` below a URL."""

    def __init__(self, work_dir: str, clock: Clock) -> None:
        self._work_dir = work_dir
        self._objects = Objects(f"{work_dir.rstrip('/')}/journal", clock)
        self._boot = os.urandom(8)
        self._lock = threading.Lock()
        self._fetched = self._take_over()
        self._head = self._fetched.head
        self._unit_bytes = self._fetched.unit_bytes
        self._last = self._fetched.last
        self.position = self._last[1]

    def _take_over(self) -> Fetched:
        """Read the history, and create the object behind it."""
        fetched = fetch(self._objects)
        try:
            self._objects.check_conditional(f"probe-{self._boot.hex()}")
            while True:
                number, position = fetched.last
                boot = JournalBlock(BlockKind.BOOT, self._boot, number + 1, position + 1, [])
                data = boot.encode()
                found = self._objects.create(group_name(number + 1), data)
                # List again: this process may have been frozen between its listing and its boot.
                listing = parse_names(self._objects.names(), self._objects.url)
                snapshot = listing.last_snapshot()
                covered = listing.snapshots[snapshot] if snapshot else 0
                if found is None and covered <= number:
                    fetched.add_group(data)
                    return fetched
                if found is None:
                    # The number was free because a snapshot has replaced it.
                    self._objects.delete([group_name(number + 1)])
                elif decode_block(found, self._objects.url).kind is BlockKind.BOOT:
                    raise self._replaced("has just started to serve")
                try:
                    if covered > number:
                        raise VanishedError
                    extend(self._objects, fetched, listing)
                except VanishedError:
                    fetched.close()
                    fetched = fetch(self._objects)
        except BaseException:
            fetched.close()
            raise

    def read(self) -> JournalHistory:
        return self._fetched.history()

    def write(self, units: list[bytes]) -> None:
        self._fetched.close()  # the history is consumed before the first write
        number, position = self._last
        data = JournalBlock(BlockKind.UNITS, self._boot, number + 1, position + 1, units).encode()
        if self._objects.create(group_name(number + 1), data) is not None:
            raise self._replaced("serves")
        with self._lock:
            self._last = (number + 1, position + len(units))
            self._unit_bytes += len(data)
        self.position = self._last[1]

    def check(self) -> None:
        if self._objects.exists(group_name(self._last[0] + 1)):
            raise self._replaced("serves")

    def compaction_due(self) -> bool:
        groups = self._last[0] - self._head.covered[0]
        return self._unit_bytes > max(COMPACTION_BYTES, self._head.nbytes) or groups > max(
            COMPACTION_GROUPS, self._head.nbytes // _BYTES_PER_GROUP
        )

    def compact(self, rewrite: Rewrite) -> None:
        fetched = fetch(self._objects, upto=self._last[0])
        try:
            head = self._write_snapshot(fetched, rewrite)
        finally:
            fetched.close()
        with self._lock:
            self._head = head
            self._unit_bytes -= fetched.unit_bytes
        self._delete_replaced(head)

    def close(self) -> None:
        self._fetched.close()

    def abandon(self) -> None:
        pass

    def _write_snapshot(self, fetched: Fetched, rewrite: Rewrite) -> SnapshotHead:
        covered = fetched.last
        snapshot = snapshot_name(covered[0], os.urandom(8).hex())
        count = size = 0
        try:
            for parts in pack(rewrite(fetched.history()), _PART_BYTES):
                data = JournalBlock(BlockKind.PARTS, self._boot, count, 0, parts).encode()
                self._objects.create(part_name(snapshot, count), data)
                count += 1
                size += len(data)
        except Exception:
            self._objects.delete([part_name(snapshot, number) for number in range(count)])
            raise
        head = SnapshotHead(covered, count, size, tuple(fetched.boots[-KEPT_BOOTS:]))
        content = [msgspec.msgpack.encode(head)]
        # The head is created last: a snapshot counts when all its parts exist.
        block = JournalBlock(BlockKind.HEAD, self._boot, covered[0], 0, content)
        self._objects.create(snapshot, block.encode())
        return head

    def _delete_replaced(self, head: SnapshotHead) -> None:
        """Delete what the snapshot of `head` replaces, and what interrupted ones have left."""
        # List, since an interrupted compaction may have left objects that nobody remembers.
        listing = parse_names(self._objects.names(), self._objects.url)
        covered = head.covered[0]
        groups = {number for number in listing.groups if number <= covered} - set(head.boots)
        old = [name for name, upto in listing.snapshots.items() if upto < covered]
        old += [name for name, upto in listing.parts.items() if upto < covered]
        self._objects.delete([*map(group_name, sorted(groups)), *sorted(old)])

    def _replaced(self, verb: str) -> FailedPreconditionError:
        return FailedPreconditionError(
            f"another dispatcher {verb} `work_dir` {self._work_dir}, so this one cannot; if both "
            "are wanted, give each its own `work_dir`"
        )
