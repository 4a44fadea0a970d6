"""Open sessions. Volatile: never recorded."""

from collections import deque
from collections.abc import Iterable, Iterator

from stoker.errors import (
    FailedPreconditionError,
    PermissionDeniedError,
    StokerError,
    to_record,
)
from stoker.service import messages as m
from stoker.service.dispatcher.actions import Action, EndSession, Send
from stoker.service.dispatcher.sessions.leases import Leases
from stoker.service.keys import are_equal

MOST_HEARTBEATS = 1000
"""Heartbeats that all workers and clients send together in a second, at 100 us of CPU each."""

HEARTBEATS_MISSED = 3
"""Heartbeats without which a holder with an open session counts as dead, if another wants its
place. With a lease of 10 s they are 3 s; a broken connection may be noticed later, after 10 s."""

CUT_OFF_HEARTBEATS = 1.5
"""Heartbeats of the holder that sends the fewest, without a message of any holder, after which the
dispatcher assumes that it is cut off: 7.5 s with clients, less than a worker's lease of 10 s."""

SLICE = 100
"""Tasks and recipients in one slice of long work; each takes up to 20 us."""


class Sessions:
    """Open sessions, their holders (workers and clients, by id) and the actions to return.

    A *peer* is the shell's number of one open session. A holder keeps its lease while it has no
    session, and may open another.

    Args:
        leases: the deadlines of the holders.
        peer_timeout: seconds without a byte after which the shell ends a session.

    Attributes:
        returning: the holders of an earlier dispatcher that are expected to open a session here.
    """

    def __init__(self, leases: Leases, peer_timeout: float) -> None:
        self.leases = leases
        self._peer_timeout = peer_timeout
        self._slices: deque[Iterator[int]] = deque()
        self._holders: dict[int, int] = {}
        self._peers: dict[int, int] = {}
        self._heartbeats: dict[int, tuple[int, int]] = {}
        self._closed: set[int] = set()
        self._ended: set[int] = set()
        self._opening: set[int] = set()
        self.returning: set[int] = set()
        self._actions: list[Action] = []

    def attach(self, peer: int, holder: int, timeout_ms: int, now: float) -> int:
        """Bind a session to its holder; end an older session of the holder.

        Returns:
            The interval of its heartbeats, in milliseconds.

        Raises:
            FailedPreconditionError: if the session has a holder.
        """
        self._opening.discard(peer)
        if peer in self._holders:
            raise FailedPreconditionError("a session opens with one hello only")
        # A peer that reconnects may be seen before its old connection is known to be broken.
        self._end_session(holder)
        self._ended.discard(peer)
        self._holders[peer] = holder
        self._peers[holder] = peer
        self._closed.discard(holder)
        self.returning.discard(holder)
        self.leases.grant(holder, timeout_ms / 1000, now)
        interval = heartbeat_ms(timeout_ms, len(self.leases))
        self._heartbeats[holder] = timeout_ms, interval
        return interval

    def heartbeat(self, holder: int) -> None:
        """Change the interval of heartbeats if the number of leases has changed much."""
        timeout_ms, interval = self._heartbeats[holder]
        wanted = heartbeat_ms(timeout_ms, len(self.leases))
        # Not at each change: while 10,000 workers register, each would get 10,000 intervals.
        if not interval / 2 < wanted < interval * 2:
            self._heartbeats[holder] = timeout_ms, wanted
            self.send(holder, m.HeartbeatInterval(wanted))

    # A dispatcher that receives nothing removes nobody: if its own link fails, all leases expire
    # together. (docs/decisions/004)
    def expired(self, now: float) -> list[int]:
        """Return the holders whose lease has expired.

        If no message of several holders arrives, most likely the dispatcher's own network has
        failed, as Kubernetes assumes of nodes that become unreachable together. No lease expires
        then. Holders that closed their session do not count: their last segments arrived.
        """
        found = self.leases.expired(now)
        if not found or len(self.leases) - len(self._closed) < 2:
            return found
        # After a restart of the dispatcher no holder may have a session yet.
        usual = heartbeat_ms(round(self.leases.longest * 1000), len(self.leases))
        longest = max((interval for _, interval in self._heartbeats.values()), default=usual)
        if self.leases.idle_seconds(now) < CUT_OFF_HEARTBEATS * longest / 1000:
            return found
        self.leases.paused = True
        return []

    def holder(self, peer: int) -> int | None:
        """Return the holder of a session, if it has one."""
        return self._holders.get(peer)

    def connected(self, holder: int) -> bool:
        """Return whether the holder has an open session."""
        return holder in self._peers

    def is_live(self, holder: int, now: float) -> bool:
        """Return whether the holder has an open session and has just renewed its lease."""
        return holder in self._peers and not self.misses_heartbeats(holder, now)

    def misses_heartbeats(self, holder: int, now: float) -> bool:
        """Return whether the holder has missed heartbeats since its last session was opened."""
        if holder not in self._heartbeats:  # a restarted dispatcher has received nothing from it
            return False
        _, interval = self._heartbeats[holder]
        return self.leases.age(holder, now) >= HEARTBEATS_MISSED * interval / 1000

    def is_late(self, holder: int, seconds: float, now: float) -> bool:
        """Return whether the holder has an open session and renewed its lease within `seconds`."""
        return holder in self._peers and self.leases.age(holder, now) < seconds

    def disconnected(self, peer: int, now: float) -> None:
        """Remove a session that broke."""
        self._ended.discard(peer)
        self._opening.discard(peer)
        holder = self._unbind(peer)
        # The shell ends the session of a peer that cannot be reached after `peer_timeout`. It may
        # handle messages late, so only what is much earlier is certain to be the peer's doing.
        if holder is not None and self.leases.age(holder, now) < self._peer_timeout / 2:
            self._closed.add(holder)

    def _unbind(self, peer: int) -> int | None:
        """Remove a session; return its holder if that has no newer one."""
        holder = self._holders.pop(peer, None)
        if holder is None or self._peers.get(holder) != peer:
            return None
        del self._peers[holder]
        return holder

    def release(self, holder: int) -> None:
        """End the lease and the session of a holder."""
        self.leases.drop(holder)
        self._heartbeats.pop(holder, None)
        self._closed.discard(holder)
        self.returning.discard(holder)
        self._end_session(holder)

    def send(self, holder: int, message: m.FromDispatcher) -> None:
        """Send if the holder has a session; otherwise it gets the state with its next one."""
        peer = self._peers.get(holder)
        if peer is not None:
            self._actions.append(Send(peer, message))

    def reply(self, peer: int, message: m.FromDispatcher) -> None:
        """Answer on a session that has no holder yet; its peer repeats the hello."""
        self._opening.add(peer)
        self._actions.append(Send(peer, message))

    def is_opening(self, peer: int) -> bool:
        """Return whether a session waits for the repeated hello of its peer."""
        return peer in self._opening

    def refuse(self, peer: int, error: StokerError) -> None:
        """Send the error and end the session."""
        self._actions += [Send(peer, m.Refused(to_record(error))), EndSession(peer)]
        # The holder keeps its lease, and may open another session.
        self._unbind(peer)

    @property
    def has_work(self) -> bool:
        """True if `work` has something to do."""
        return bool(self._slices)

    # Long work is done in slices of 100 tasks and recipients: with 10,000 workers the longest call
    # takes 3.5 ms instead of 126. (docs/decisions/067)
    def in_slices(self, steps: Iterator[int]) -> None:
        """Do work whose length depends on the number of workers, tasks or clients.

        Steps that together cost `SLICE` are done immediately, unless earlier work waits; the others
        by `work`, in the order of the calls.

        Args:
            steps: does a step whenever it is asked for the next cost: the number of tasks and
                recipients that the step concerned.
        """
        # Behind earlier work, so that messages to a holder keep their order.
        if self._slices or _is_unfinished(steps):
            self._slices.append(steps)

    def send_all(self, messages: Iterable[tuple[int, m.FromDispatcher | None]]) -> None:
        """Send ``(holder, message)`` pairs in slices; a message of ``None`` is not sent."""
        self.in_slices(self._send_steps(messages))

    def _send_steps(self, messages: Iterable[tuple[int, m.FromDispatcher | None]]) -> Iterator[int]:
        for holder, message in messages:
            if message is not None:
                self.send(holder, message)
            yield 1 + (len(message.added) if isinstance(message, m.Tasks) else 0)

    def work(self) -> None:
        """Do the next slice."""
        if self._slices and not _is_unfinished(self._slices[0]):
            self._slices.popleft()

    def take_actions(self) -> list[Action]:
        """Return the actions of the shell since the last call, in order."""
        actions, self._actions = self._actions, []
        return actions

    def _end_session(self, holder: int) -> None:
        peer = self._peers.pop(holder, None)
        if peer is not None:
            del self._holders[peer]
            self._ended.add(peer)
            self._actions.append(EndSession(peer))

    def has_ended(self, peer: int) -> bool:
        """Return whether the dispatcher has ended a session that the peer may not know to end."""
        return peer in self._ended


def _is_unfinished(steps: Iterator[int]) -> bool:
    """Do one slice; return whether more is left."""
    cost = 0
    for step in steps:
        cost += step
        if cost >= SLICE:
            return True
    return False


def check_key(key: bytes, expected: bytes, whose: str) -> None:
    """Check the key of a peer that resumes a session or speaks for a worker.

    Raises:
        PermissionDeniedError: if it is not the expected one.
    """
    if not are_equal(key, expected):
        raise PermissionDeniedError(f"this is not the key of {whose}")


def negotiate(theirs_min: int, theirs_max: int) -> int:
    """Return the newest version of the control protocol that both sides support.

    Raises:
        FailedPreconditionError: if there is none.
    """
    version = min(m.PROTOCOL_MAX, theirs_max)
    if version < max(m.PROTOCOL_MIN, theirs_min):
        raise FailedPreconditionError(
            f"no common control protocol: the dispatcher speaks {m.PROTOCOL_MIN} to "
            f"{m.PROTOCOL_MAX}, the other side {theirs_min} to {theirs_max}; install the same "
            "stoker version on both"
        )
    return version


def heartbeat_ms(timeout_ms: int, leases: int) -> int:
    """Return the heartbeat interval for one of `leases` leases of `timeout_ms`.

    A tenth of the lease, at most 5 s; but so long that all together send no more than
    `MOST_HEARTBEATS`, up to a third of the lease.
    """
    usual = min(timeout_ms // 10, 5000)
    return max(1, min(max(usual, leases * 1000 // MOST_HEARTBEATS), timeout_ms // 3))
