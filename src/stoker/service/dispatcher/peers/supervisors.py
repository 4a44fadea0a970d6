"""Sessions of processes that run workers in child processes."""

from stoker.errors import FailedPreconditionError
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.peers.workers import Workers
from stoker.service.dispatcher.sessions.sessions import Sessions, heartbeat_ms, negotiate
from stoker.service.keys import are_equal


class Supervisors:
    """Handles the messages of supervisors, which have no lease and no id.

    Args:
        config: the workers' lease.
        ledger: the state.
        sessions: sends answers.
        workers: removes workers that died.
    """

    def __init__(
        self, config: DispatcherConfig, ledger: Ledger, sessions: Sessions, workers: Workers
    ) -> None:
        self._lease_ms = config.worker_timeout_ms
        self._ledger = ledger
        self._sessions = sessions
        self._workers = workers
        self._peers: set[int] = set()

    def hello(self, peer: int, hello: m.SupervisorHello) -> None:
        """Accept the session of a supervisor.

        Raises:
            FailedPreconditionError: if it speaks another protocol.
        """
        protocol = negotiate(hello.protocol_min, hello.protocol_max)
        self._peers.add(peer)
        # One supervisor renews the leases of all workers of a host, so its messages need no limit.
        interval_ms = heartbeat_ms(self._lease_ms, leases=0)
        welcome = m.SupervisorWelcome(
            protocol, self._ledger.journal_id, interval_ms, self._lease_ms
        )
        self._sessions.reply(peer, welcome)

    def connected(self, peer: int) -> bool:
        """Return whether the session belongs to a supervisor."""
        return peer in self._peers

    def disconnected(self, peer: int) -> None:
        """Forget a session; the leases of the workers stay as they are."""
        self._peers.discard(peer)

    def received(self, message: m.ToDispatcher, now: float) -> None:
        """Handle a message of a supervisor.

        Raises:
            FailedPreconditionError: if only workers or clients send such messages.
        """
        if isinstance(message, m.KeepAlive):
            for worker_id, key in message.workers.items():
                worker = self._ledger.state.workers.get(worker_id)
                if worker is not None and are_equal(key, worker.added.key):
                    self._sessions.leases.renew(worker_id, now)
        elif isinstance(message, m.WorkerDied):
            worker = self._ledger.state.workers.get(message.worker_id)
            # A late report may name a worker of an earlier dispatcher, and a stranger any.
            if worker is not None and are_equal(message.key, worker.added.key):
                self._workers.died(message)
        else:
            raise FailedPreconditionError(
                f"a supervisor sends KeepAlive and WorkerDied, not {type(message).__name__}"
            )
