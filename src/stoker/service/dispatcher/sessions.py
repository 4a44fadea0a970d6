"""Who is connected. None of it is recorded: it concerns only the living."""

from stoker.errors import FailedPreconditionError, StokerError, to_record
from stoker.service import messages as m
from stoker.service.dispatcher.actions import Action, Hangup, Send
from stoker.service.dispatcher.leases import Leases


class Sessions:
    """Open sessions and their holders (workers and clients, by id), and what is to be sent.

    A *peer* is the shell's number for one open session. A holder keeps its lease while it has no
    session, and may come back on another.
    """

    def __init__(self, leases: Leases) -> None:
        self.leases = leases
        self._holders: dict[int, int] = {}
        self._peers: dict[int, int] = {}
        self._actions: list[Action] = []

    def attach(self, peer: int, holder: int, timeout_ms: int, now: float) -> None:
        """The holder speaks on this session from here on; an older one of it is ended.

        Raises:
            FailedPreconditionError: the session has a holder.
        """
        if peer in self._holders:
            raise FailedPreconditionError("a session opens with one hello only")
        self._hang_up(holder)
        self._holders[peer] = holder
        self._peers[holder] = peer
        self.leases.grant(holder, timeout_ms / 1000, now)

    def holder(self, peer: int) -> int | None:
        """Whose session it is."""
        return self._holders.get(peer)

    def connected(self, holder: int) -> bool:
        """Whether the holder has a session."""
        return holder in self._peers

    def broke(self, peer: int) -> None:
        """The session is gone."""
        holder = self._holders.pop(peer, None)
        if holder is not None and self._peers.get(holder) == peer:
            del self._peers[holder]

    def release(self, holder: int) -> None:
        """The holder is no more: ends its lease and its session."""
        self.leases.drop(holder)
        self._hang_up(holder)

    def send(self, holder: int, message: m.FromDispatcher) -> None:
        """Sends if the holder has a session; if not, it is told when it comes back."""
        peer = self._peers.get(holder)
        if peer is not None:
            self._actions.append(Send(peer, message))

    def reply(self, peer: int, message: m.FromDispatcher) -> None:
        """Answers on a session that has no holder yet."""
        self._actions.append(Send(peer, message))

    def refuse(self, peer: int, error: StokerError) -> None:
        """Says why and ends the session."""
        self._actions += [Send(peer, m.Refused(to_record(error))), Hangup(peer)]
        self.broke(peer)

    def take_actions(self) -> list[Action]:
        """What the shell is to do, in order."""
        actions, self._actions = self._actions, []
        return actions

    def _hang_up(self, holder: int) -> None:
        peer = self._peers.pop(holder, None)
        if peer is not None:
            del self._holders[peer]
            self._actions.append(Hangup(peer))


def negotiate(theirs_min: int, theirs_max: int) -> int:
    """The newest control protocol that both sides speak.

    Raises:
        FailedPreconditionError: there is none.
    """
    version = min(m.PROTOCOL_MAX, theirs_max)
    if version < max(m.PROTOCOL_MIN, theirs_min):
        raise FailedPreconditionError(
            f"no common control protocol: the dispatcher speaks {m.PROTOCOL_MIN} to "
            f"{m.PROTOCOL_MAX}, the other side {theirs_min} to {theirs_max}; install the same "
            "stoker version on both"
        )
    return version


def heartbeat_ms(timeout_ms: int) -> int:
    """How often a holder must be heard of to keep a lease of `timeout_ms`, with room to spare."""
    return max(1, min(timeout_ms // 10, 5000))
