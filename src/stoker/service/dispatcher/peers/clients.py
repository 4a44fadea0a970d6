"""Clients: admitted to an iteration, resumed after a broken session, and released."""

import math

from stoker.errors import NotFoundError, UnavailableError, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.iterations.iteration_opening import IterationOpening
from stoker.service.dispatcher.iterations.iterations import Iterations
from stoker.service.dispatcher.iterations.jobs import fingerprint, job_cancelled, requested_dataset
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.sessions.sessions import Sessions, check_key, negotiate
from stoker.service.dispatcher.state import records as r
from stoker.service.keys import KEY_BYTES
from stoker.service.rules.checks import check_index

_NO_JOURNAL = (
    "the dispatcher was restarted without a journal and has forgotten this job; begin it again. "
    "With `fault_tolerant_mode` and `work_dir` a restarted dispatcher knows its jobs"
)
_OTHER_JOURNAL = (
    "the dispatcher was restarted with another journal, which does not have this job; restart it "
    "with the `work_dir` that it had, if it had one, or begin the job again"
)


class Clients:
    """Handle the messages and the leases of clients."""

    def __init__(
        self,
        config: DispatcherConfig,
        ledger: Ledger,
        sessions: Sessions,
        iterations: Iterations,
        opening: IterationOpening,
        *,
        journaled: bool,
    ) -> None:
        self._timeout_ms = config.client_timeout_ms
        self._journaled = journaled
        self._patience_ms = config.dispatcher_patience_ms if journaled else 0
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._iterations = iterations
        self._opening = opening

    def hello(self, peer: int, hello: m.ClientHello, now: float) -> None:
        """Admit a new client, or resume one that lost its session.

        Raises:
            StokerError: if the client cannot read what it asks for.
        """
        protocol = negotiate(hello.protocol_min, hello.protocol_max)
        warning = ""
        # Before the job is looked up, which would begin it anew.
        if hello.key in self._state.history.cancelled:
            raise job_cancelled(self._state.history.cancelled[hello.key])
        self._iterations.check_replaced(hello.key)
        if (known := self._known(hello)) is not None:
            client, is_new = known, False
        else:
            admitted = self._admit(hello, now)
            if admitted is None:  # the client sends its hello again, with the tree
                self._sessions.reply(peer, m.DatasetUnknown())
                return
            (client, warning), is_new = admitted, True
        client_id, iteration = client.client_id, client.iteration
        # A client that resumes its session has it since its first welcome, and may name a dataset
        # that was removed since.
        compression = None
        if hello.client_id is None or is_new:
            compression = requested_dataset(self._state, hello).compression
        heartbeat_ms = self._sessions.attach(peer, client_id, self._timeout_ms, now)
        self._sessions.send(
            client_id,
            m.ClientWelcome(
                protocol=protocol,
                client_id=client_id,
                iteration_id=iteration.iteration_id,
                journal_id=self._ledger.journal_id,
                heartbeat_ms=heartbeat_ms,
                warning=warning,
                compression=compression,
                key=client.key,
                dispatcher_patience_ms=self._patience_ms,
                length=mode_of(iteration.parameters).length(iteration),
            ),
        )
        if iteration.error is not None:
            self._sessions.send(client_id, m.Refused(iteration.error))
        if is_new:
            self._iterations.client_joined(client)
        else:
            self._ledger.events.client_resumed(client, hello.reason)
            self._iterations.client_resumed(client)

    def _known(self, hello: m.ClientHello) -> e.ClientEntry | None:
        """Return the client that opens another session; ``None`` for a new client.

        Raises:
            StokerError: if a client is unknown that cannot be admitted again.
        """
        client_id = hello.client_id
        # An id of another journal names something else here.
        clients = self._state.clients if hello.journal_id == self._ledger.journal_id else {}
        if client_id is not None and (client := clients.get(client_id)) is not None:
            check_key(hello.key, client.key, f"client {client_id}")
            return client
        if client_id is None or mode_of(hello.parameters).ends_with_clients:
            return self._of_key(hello)
        if hello.journal_id != self._ledger.journal_id:
            raise UnavailableError(_OTHER_JOURNAL if self._journaled else _NO_JOURNAL)
        raise self._unknown(client_id)

    def _of_key(self, hello: m.ClientHello) -> e.ClientEntry | None:
        """Return the client that was registered by an earlier hello whose answer was lost."""
        client = self._state.clients_by_key.get(hello.key)
        if client is None or not hello.key:
            return None
        iteration = client.iteration
        # The client chooses its key: with another epoch it is another client.
        same = (iteration.job.added.job, iteration.epoch) == (hello.job, hello.epoch)
        return client if same else None

    def _admit(self, hello: m.ClientHello, now: float) -> tuple[e.ClientEntry, str] | None:
        """Return a new client and a warning for its user; ``None`` if its tree is needed."""
        check_index(hello)
        opened = self._opening.open(hello, now)
        if opened is None:
            return None
        iteration, warning = opened
        client_id = self._ledger.new_id()
        code = fingerprint(requested_dataset(self._state, hello))
        key = hello.key if len(hello.key) == KEY_BYTES else self._ledger.new_key()
        self._ledger.commit(
            r.ClientAdded(
                client_id,
                iteration.iteration_id,
                hello.process,
                code=code,
                key=key,
                consumer_index=hello.consumer_index,
            )
        )
        client = self._state.clients[client_id]
        sharing = mode_of(iteration.parameters).sharing
        for other in list(iteration.clients.values()):
            error = sharing.successor_error(other, hello) if other is not client else None
            if error is not None:
                self._iterations.replace_client(other, error, now)
        return client, warning

    def received(self, client_id: int, message: m.ToDispatcher, now: float) -> None:
        """Handle a message on the session of a client.

        Raises:
            InvalidArgumentError: if a position is not possible.
        """
        if isinstance(message, m.TaskRead):
            self._iterations.task_read(self._state.clients[client_id], message.task_id)
        elif isinstance(message, m.ReadToEnd):
            answer = self._end_state(self._state.clients[client_id], now)
            # In a slice, after the losses that other clients are being notified of.
            self._sessions.send_all([(client_id, answer)])
        elif isinstance(message, m.TaskLeft):
            client = self._state.clients[client_id]
            self._iterations.assignment(client.iteration).task_left(client, message)
        elif isinstance(message, m.ClientClose):
            self._close(client_id, message, now)
        else:
            client = self._state.clients[client_id]
            self._iterations.coordinator(client.iteration).received(client, message)

    def _end_state(self, client: e.ClientEntry, now: float) -> m.EndState:
        """Return which clients may still hold elements of the iteration that `client` reads."""
        iteration, mode = client.iteration, mode_of(client.iteration.parameters)
        tasks = [x for x in iteration.by_worker.values() if not x.over and mode.reaches(client, x)]
        if not tasks or iteration.stopped:
            return m.EndState(final=True)
        holders = {x for task in tasks for x in task.readers | task.leaving} - {client.client_id}
        silent = [x for x in holders if not self._sessions.is_live(x, now)]
        seconds = max((self._sessions.leases.remaining(x, now) for x in silent), default=0.0)
        # At least 1 ms: the end of a lease is noticed by the next tick only.
        return m.EndState(False, bool(holders), max(1, math.ceil(1000 * seconds)) if silent else 0)

    def close(self, request: m.CloseClient, now: float) -> None:
        """Release a client whose session is broken, unless it was released before.

        Raises:
            PermissionDeniedError: if the key is not that of the client.
            InvalidArgumentError: if a position is not possible.
        """
        client = self._state.clients.get(request.client_id)
        # An id of another journal is that of another client here.
        if client is not None and request.journal_id == self._ledger.journal_id:
            check_key(request.key, client.key, f"client {request.client_id}")
            self._close(client.client_id, request.close, now)

    def expired(self, client_id: int, now: float) -> None:
        """Release a client whose lease has expired."""
        client = self._state.clients[client_id]
        self._iterations.remove_client(client, m.ClientClose(), now)
        # The client may live: its session is open, but its process was stopped for longer than the
        # lease. A client that may be admitted again finds its session closed.
        if not mode_of(client.iteration.parameters).ends_with_clients:
            self._sessions.send(client_id, m.Refused(to_record(self._unknown(client_id))))
        self._sessions.release(client_id)

    def _close(self, client_id: int, close: m.ClientClose, now: float) -> None:
        client = self._state.clients[client_id]
        self._iterations.coordinator(client.iteration).check_close(close)
        self._iterations.remove_client(client, close, now)
        self._sessions.send(client_id, m.ClientClosed())
        self._sessions.release(client_id)

    def _unknown(self, client_id: int) -> NotFoundError:
        return NotFoundError(
            f"Unknown iteration client id {client_id}. It was released after "
            f"{self._timeout_ms / 1000:g} s without a heartbeat"
        )
