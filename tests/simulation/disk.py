"""A simulated disk with the journal of the dispatcher; it outlives the dispatcher's process."""

from collections.abc import Callable

from stoker.errors import UnavailableError
from stoker.service.dispatcher.state.snapshot import compact, rebuild
from stoker.service.dispatcher.state.state import State
from tests.simulation.network import World
from tests.simulation.process import Process

CHECK_SECONDS = 1.0
"""Interval at which a journal checks that it may still write; leases are longer."""


class Disk:
    """The durable part of a journal.

    Args:
        world: the clock.
        slowest: the longest time of a commit, in seconds.

    Attributes:
        snapshot: parts that replace the oldest units.
        units: the units after it.
        full: writes fail.
        owner: the only journal that may write.
        lost: the number of units that were appended and lost by crashes.
        torn: the number of groups that were stored in part.
        compactions: the number of snapshots.
        restored: the number of journals that had lost their end, and were replaced by the whole.
    """

    def __init__(self, world: World, slowest: float) -> None:
        self.world, self.slowest = world, slowest
        self.snapshot: list[bytes] = []
        self.units: list[bytes] = []
        self.full = False
        self.owner: SimJournal | None = None
        self.lost = 0
        self.torn = 0
        self.compactions = 0
        self.restored = 0
        self._whole: tuple[list[bytes], list[bytes]] | None = None

    def cut(self, units: int) -> None:
        """Lose the last units, up to the one that added a peer: the dispatcher awaits the others.

        If a peer returns that it does not know, it may have given splits to others before.
        """
        self._whole = self.snapshot, self.units
        state = self.read()
        peers = state.workers.keys() | state.clients.keys()
        while units > 0 and self.units:
            last = self.units
            self.units, units = self.units[:-1], units - 1
            state = self.read()
            if not state.history.journal_id or state.workers.keys() | state.clients.keys() != peers:
                self.units = last
                return

    def restore(self) -> None:
        """Undo the last `cut`, and what was written since."""
        assert self._whole is not None, "the journal has not lost its end"
        (self.snapshot, self.units), self._whole = self._whole, None
        self.restored += 1

    def read(self) -> State:
        """Return the state of the journal."""
        return rebuild(self.snapshot, self.units)

    def compact(self) -> None:
        """Replace some of the oldest units by a snapshot."""
        count = self.world.rng.randint(0, len(self.units))
        self.snapshot = list(compact(self.snapshot, self.units[:count]))
        self.units = self.units[count:]
        self.compactions += 1


class SimJournal:
    """The journal of one dispatcher process: it commits what was appended in groups.

    It has the attributes that `JournalGate` uses of a `stoker.service.journal.Journal`.

    Args:
        disk: where it is kept.
        process: the process of the dispatcher.
        durable: called after each commit.
        failed: called if a commit fails.

    Attributes:
        position: the number of units appended.
        durable_position: the number of units that are durable.
    """

    def __init__(
        self,
        disk: Disk,
        process: Process,
        durable: Callable[[], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self.position = self.durable_position = 0
        self._waiting: list[bytes] = []
        self._group: list[bytes] = []
        self._has_failed = False
        self._disk, self._process = disk, process
        self._durable, self._failed = durable, failed
        disk.owner = self
        process.every(CHECK_SECONDS, self._check, lambda: not self._has_failed)

    def append(self, unit: bytes) -> None:
        """Add a unit to the next group."""
        self.position += 1
        self._waiting.append(unit)
        self._commit()

    def flush(self) -> None:
        """Make durable what was appended, at once."""
        self._disk.units = self._disk.units + self._group + self._waiting
        self.durable_position = self.position
        self._group, self._waiting = [], []

    def tear(self) -> None:
        """End with the process, or with the journal of another dispatcher on this disk.

        The group in flight is stored in part, the units after it are not.
        """
        if self._disk.owner is not self:
            return
        rng = self._disk.world.rng
        kept = rng.randint(0, len(self._group)) if not self._disk.full else 0
        self._disk.units = self._disk.units + self._group[:kept]
        self._disk.lost += len(self._group) - kept + len(self._waiting)
        self._disk.torn += 0 < kept < len(self._group)
        self._group, self._waiting = [], []
        self._disk.owner = None

    def _check(self) -> None:
        """Notice that another dispatcher has opened the journal."""
        if self._disk.owner is not self:
            self._fail("another dispatcher has replaced this one")

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            self._failed(UnavailableError(reason))

    def _commit(self) -> None:
        """Begin to store what waits, unless a group is in flight."""
        if self._group or not self._waiting or self._has_failed:
            return
        self._group, self._waiting = self._waiting, []
        rng = self._disk.world.rng
        self._process.after(rng.uniform(0.001, self._disk.slowest), self._committed)

    def _committed(self) -> None:
        if self._disk.owner is not self:
            self._check()
            return
        if self._disk.full:
            self._fail("the simulated disk is full")
            return
        self._disk.units = self._disk.units + self._group
        self.durable_position += len(self._group)
        self._group = []
        self._commit()
        self._durable()
