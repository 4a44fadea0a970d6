"""The session of a process that runs workers in child processes."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from stoker.service import messages as m
from stoker.service.config import parse_service
from stoker.service.control import rpc_session
from stoker.service.control.control_connection import PEER_TIMEOUT
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.worker.processes.process import WorkerProcess

logger = logging.getLogger(__name__)

_DEATHS_TO_REPEAT = 1024
"""Reported deaths that are sent again on a new session: the dispatcher may be killed before it has
stored them. One that does not know the worker, or has another in its place, ignores them."""


# A parent renews the leases of its child workers, so that a function that holds the GIL for a
# minute does not cost a worker its tasks. (docs/decisions/006)
class SupervisorSession:
    """Renews the leases of active child workers and reports their deaths, on one session.

    A worker whose user function holds the GIL cannot send heartbeats; its parent does, unless the
    process is stopped or blocked. A death is known to the dispatcher within milliseconds, without
    waiting for the lease.

    Args:
        service: the dispatcher, as in `WorkerConfig.dispatcher_address`.
        children: returns the running children; called on the control loop.
        peer_timeout: seconds without a byte from the dispatcher after which the session is broken.
        clock: times heartbeats and the session.
    """

    def __init__(
        self,
        service: str,
        children: Callable[[], Sequence[WorkerProcess]],
        peer_timeout: float = PEER_TIMEOUT,
        clock: Clock = CLOCK,
    ) -> None:
        self._clock = clock
        self._peer_timeout = peer_timeout
        self._dispatcher_address = parse_service(service)[1]
        self._children = children
        self._lock = threading.Lock()
        self._deaths: deque[m.WorkerDied] = deque(maxlen=_DEATHS_TO_REPEAT)
        self._hello = m.SupervisorHello(m.PROTOCOL_MIN, m.PROTOCOL_MAX)
        self._session: rpc_session.Session | None = None
        self._interval: float | None = None
        self._lease = 0.0
        self._next_heartbeat = 0.0

    def start(self) -> None:
        """Open the session; call once."""
        with self._lock:  # the callbacks run immediately, and use the session
            # Without `failed`: after an exception of a callback it goes on, with no state to lose.
            self._session = rpc_session.Session(
                self._dispatcher_address,
                self._opened,
                self._received,
                self._lost,
                self._tick,
                peer_timeout=self._peer_timeout,
                clock=self._clock,
            )

    def stop(self) -> None:
        """Close the session; idempotent."""
        with self._lock:
            session, self._session = self._session, None
        if session is not None:
            session.close()

    def report_death(self, child: WorkerProcess, how: object) -> None:
        """Report that a child died, if its worker was registered; from any thread.

        Args:
            child: has ended, and is not stopped here.
            how: its `Exit`, or words like it.
        """
        identity, calls = child.identity, child.lost_calls()
        if identity is None:
            return
        death = m.WorkerDied(
            identity.worker_id, f"it {how}", identity.key, calls.by_task, calls.alone
        )
        with self._lock:
            self._deaths.append(death)
        self._send(death)

    def _send(self, message: m.FromSupervisor) -> None:
        with self._lock:
            session = self._session
        if session is not None:
            session.send(message)

    def _opened(self) -> None:
        self._send(self._hello)

    def _received(self, message: m.FromDispatcher) -> None:
        if isinstance(message, m.SupervisorWelcome):
            position = message.journal_position or self._hello.journal_position
            self._hello = msgspec.structs.replace(self._hello, journal_position=position)
            with self._lock:
                # All again: the dispatcher may have lost the last ones with its session.
                deaths = list(self._deaths)
            self._lease = message.lease_ms / 1000
            self._interval = message.heartbeat_ms / 1000
            for death in deaths:
                self._send(death)
        elif isinstance(message, m.Refused):
            logger.error("the dispatcher refuses this supervisor: %s", message.error.message)

    def _lost(self) -> None:
        self._interval = None

    def _tick(self) -> None:
        now = self._clock.now()
        if self._interval is not None and now >= self._next_heartbeat:
            self._next_heartbeat = now + self._interval
            active = [x.identity for x in self._children() if x.active_within(self._lease)]
            self._send(m.KeepAlive(dict(x for x in active if x is not None)))
