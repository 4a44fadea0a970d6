"""Clients: admitted to an iteration, resumed after a broken session, and released."""

from stoker.errors import InvalidArgumentError, NotFoundError, UnavailableError, to_record
from stoker.service import messages as m
from stoker.service.config import DispatcherConfig
from stoker.service.dispatcher import entities as e
from stoker.service.dispatcher import records as r
from stoker.service.dispatcher.iterations import Iterations
from stoker.service.dispatcher.jobs import fingerprint, requested_dataset
from stoker.service.dispatcher.ledger import Ledger
from stoker.service.dispatcher.sessions import Sessions, check_key, negotiate


class Clients:
    """Handle the messages and the leases of clients."""

    def __init__(
        self, config: DispatcherConfig, ledger: Ledger, sessions: Sessions, iterations: Iterations
    ) -> None:
        self._timeout_ms = config.client_timeout_ms
        self._ledger = ledger
        self._state = ledger.state
        self._sessions = sessions
        self._iterations = iterations

    def hello(self, peer: int, hello: m.ClientHello, now: float) -> None:
        """Admit a new client, or resume one that lost its session.

        Raises:
            StokerError: if the client cannot read what it asks for.
        """
        protocol = negotiate(hello.protocol_min, hello.protocol_max)
        warning, compression = "", None
        if hello.client_id is None:
            opened = self._iterations.open(hello, now)
            if opened is None:  # the client sends its hello again, with the tree
                self._sessions.reply(peer, m.DatasetUnknown())
                return
            iteration, warning = opened
            if iteration.finished and hello.named and not any(hello.epoch):
                warning += f"{'; ' if warning else ''}{_already_read(hello.job)}"
            dataset = requested_dataset(self._state, hello)
            compression = dataset.compression
            client_id = self._ledger.new_id()
            code = fingerprint(dataset)
            self._ledger.commit(
                r.ClientAdded(client_id, iteration.iteration_id, hello.process, code)
            )
            client = self._state.clients[client_id]
        else:
            client = self._find(hello.client_id, hello.journal_id)
            key = self._ledger.key_of("client", hello.client_id)
            check_key(hello.key, key, f"client {hello.client_id}")
            client_id, iteration = client.client_id, client.iteration
        heartbeat_ms = self._sessions.attach(peer, client_id, self._timeout_ms, now)
        self._sessions.send(
            client_id,
            m.ClientWelcome(
                protocol,
                client_id,
                iteration.iteration_id,
                self._ledger.journal_id,
                heartbeat_ms,
                warning,
                compression,
                self._ledger.key_of("client", client_id),
            ),
        )
        # The state of all tasks: what an older session was sent may be lost.
        if iteration.error is not None:
            self._sessions.send(client_id, m.Refused(iteration.error))
        self._iterations.notify(client, list(iteration.tasks.values()))
        self._iterations.advance(iteration, self._state.workers.values())

    def received(self, client_id: int, message: m.ToDispatcher, now: float) -> None:
        """Handle a message on the session of a client.

        Raises:
            InvalidArgumentError: if a number is not possible.
        """
        if isinstance(message, m.TaskRead):
            self._iterations.task_read(self._state.clients[client_id], message.task_id)
        elif isinstance(message, m.ClientClose):
            for task_id, numbers in message.consumed.items():
                if min(numbers) < 0:
                    raise InvalidArgumentError(
                        f"`consumed` of task {task_id} must not be negative, got {numbers}"
                    )
            self._release(client_id, message.consumed, now)
            self._sessions.release(client_id)

    def expired(self, client_id: int, now: float) -> None:
        """Release a client whose lease has expired."""
        self._release(client_id, {}, now)
        self._sessions.send(client_id, m.Refused(to_record(self._unknown(client_id))))
        self._sessions.release(client_id)

    def _find(self, client_id: int, journal_id: str) -> e.Client:
        if journal_id != self._ledger.journal_id:
            raise UnavailableError(
                "the dispatcher was restarted without a journal and has forgotten this job; begin "
                "it again (this version of stoker keeps no journal)"
            )
        if client_id not in self._state.clients:
            raise self._unknown(client_id)
        return self._state.clients[client_id]

    def _release(self, client_id: int, consumed: dict[int, tuple[int, int]], now: float) -> None:
        iteration = self._state.clients[client_id].iteration
        self._ledger.commit(r.ClientRemoved(client_id, consumed))
        if not iteration.stopped:
            # The client sends `GiveBack` too, but its data connection may be broken.
            tasks = list(iteration.by_worker.items())
            self._sessions.send_all(
                (worker_id, m.ClientReleased(x.task_id, client_id, consumed.get(x.task_id)))
                for worker_id, x in tasks
            )
        self._iterations.client_left(iteration, now)

    def _unknown(self, client_id: int) -> NotFoundError:
        return NotFoundError(
            f"Unknown iteration client id {client_id}. It was released after "
            f"{self._timeout_ms / 1000:g} s without a heartbeat"
        )


def _already_read(job: str) -> str:
    return (
        f"all elements of the first epoch of job {job!r} were read before, so this client gets "
        "none; use another job_name to read them again, or repeat() to go on with later epochs"
    )
