"""The clients that read the tasks of a worker, and their connections."""

from collections.abc import Mapping

from stoker.errors import (
    FailedPreconditionError,
    NotFoundError,
    PermissionDeniedError,
    StokerError,
    UnavailableError,
)
from stoker.service.keys import are_equal, reader_key
from stoker.service.worker import actions as a
from stoker.service.worker.outbox import Outbox
from stoker.service.worker.tasks.reader import Reader
from stoker.service.worker.tasks.task import Task
from stoker.wire import frames as f

PARKED_SECONDS = 10.0
"""Time for which a connection waits for its task: a client may be notified before the worker."""


class ClientConnections:
    """Opens and closes the connections of clients that read tasks.

    Args:
        tasks: the tasks of the worker by id.
        outbox: the actions.
        address: the worker's address.
        buffer_bytes: how many bytes each reader may be sent ahead of its user.
        peer_timeout_ms: time in which both ends of a connection notice an unreachable peer.

    Attributes:
        opened: connection → its task and client.
        parked: connection that waits for its task → its hello and the time until which it waits.
    """

    def __init__(
        self,
        tasks: Mapping[int, Task],
        outbox: Outbox,
        address: str,
        buffer_bytes: int,
        peer_timeout_ms: int,
    ) -> None:
        self.opened: dict[int, tuple[int, int]] = {}
        self.parked: dict[int, tuple[f.Hello, float]] = {}
        self._tasks = tasks
        self._outbox = outbox
        self._address = address
        self._buffer_bytes = buffer_bytes
        self._peer_timeout_ms = peer_timeout_ms

    def get(self, connection: int) -> tuple[Task, Reader] | None:
        """Return the task and the reader of an open connection."""
        task_id, client_id = self.opened.get(connection, (-1, -1))
        task = self._tasks.get(task_id)
        reader = task.readers.get(client_id) if task is not None else None
        if task is None or reader is None or reader.connection != connection:
            return None
        return task, reader

    def open(self, connection: int, hello: f.Hello, now: float) -> Task | None:
        """Handle a hello; return the task, if the client reads it now."""
        try:
            protocol = f.negotiate(hello.protocol_min, hello.protocol_max)
            task = self._tasks.get(hello.task_id)
            # The dispatcher notifies clients and workers at the same time.
            if task is None:
                self.parked[connection] = (hello, now + PARKED_SECONDS)
                return None
            if not are_equal(hello.key, reader_key(task.start.key, hello.client_id)):
                raise PermissionDeniedError(
                    f"this is not the key of client {hello.client_id} for task {hello.task_id}"
                )
            if hello.client_id in task.released:
                raise _unknown_client(hello.client_id)
            known = task.readers.get(hello.client_id)
            reader = known or self._new_reader(task, hello)
            # The `Welcome` that named the first frame may be lost, or the `Credit` that skips.
            if known is not None:
                task.skip(known, hello.next_frame)
            next_frame = max(hello.next_frame, reader.first_number)
            _check_resumable(reader, hello, next_frame)
        except StokerError as error:
            self.close(connection, error)
            return None
        # The old connection may be half open: the client has noticed its end, this host has not.
        self.close(reader.connection, UnavailableError("the client connected again"))
        task.readers[hello.client_id] = reader
        reader.metered, reader.reports = hello.metered, hello.reports
        self.opened[connection] = (hello.task_id, hello.client_id)
        welcome = f.Welcome(
            protocol, self._address, self._buffer_bytes, self._peer_timeout_ms, next_frame
        )
        self._outbox.do(a.SendToClient(connection, welcome))
        reader.connect(connection, hello.attempt, next_frame)
        return task

    def take_parked(self, task_id: int) -> list[tuple[int, f.Hello]]:
        """Remove and return the connections that wait for a task, with their hellos."""
        found = [(n, hello) for n, (hello, _) in self.parked.items() if hello.task_id == task_id]
        for connection, _ in found:
            del self.parked[connection]
        return found

    def tick(self, now: float) -> None:
        """Close connections whose tasks have not started in time."""
        for connection, (hello, until) in list(self.parked.items()):
            if now > until:
                del self.parked[connection]
                error = NotFoundError(f"task {hello.task_id} does not run on this worker")
                self.close(connection, error)

    def lost(self, connection: int) -> None:
        """Handle a broken connection. Its frames are kept: the client may reconnect."""
        self.parked.pop(connection, None)
        found = self.get(connection)
        if found is not None:
            found[1].disconnect()
        self.opened.pop(connection, None)

    def release(self, task: Task, reader: Reader, consumed: tuple[int, int] | None = None) -> None:
        """Take back what a client has not consumed, which may read no more.

        Args:
            task: that it has read.
            reader: its state.
            consumed: the values of `GiveBack`; ``None`` if they are unknown.
        """
        task.give_back(reader, consumed)
        self.close(reader.connection, _unknown_client(reader.client_id))

    def close(self, connection: int | None, error: StokerError | None) -> None:
        """Close a connection, if there is one."""
        if connection is not None:
            self.opened.pop(connection, None)
            self._outbox.close_connection(connection, error)

    def close_all(self, task: Task, error: StokerError) -> None:
        """Close the connections of all clients of a task, which may connect again."""
        for reader in task.readers.values():
            self.close(reader.connection, error)
            reader.disconnect()

    def _new_reader(self, task: Task, hello: f.Hello) -> Reader:
        """Return the state of a new client, after the release of one that it replaces.

        Raises:
            StokerError: if it cannot read the task.
        """
        index = hello.consumer_index
        for other in list(task.readers.values()):
            if index is not None and other.consumer_index == index:
                if other.client_id > hello.client_id:  # the older of the two was replaced
                    raise _unknown_client(hello.client_id)
                task.release(other.client_id)
                self.release(task, other)
        reader = task.buffer.new_reader(hello.client_id, self._buffer_bytes, index)
        if index is None:
            # A consumer of a coordinated read may begin at any round; others begin at frame 0.
            _check_resumable(reader, hello, hello.next_frame)
        first = task.buffer.join(hello.client_id, hello.trainer, index, hello.next_frame)
        reader.begin_at(first)
        return reader


def _check_resumable(reader: Reader, hello: f.Hello, next_frame: int) -> None:
    """Check that a client that connects can continue from `next_frame` on.

    Raises:
        UnavailableError: if a newer connection of the client arrived before.
        FailedPreconditionError: if its next frame is not kept.
    """
    if hello.attempt <= reader.attempt:
        raise UnavailableError("a newer connection of the client arrived before")
    if not reader.can_resume(next_frame):
        raise FailedPreconditionError(
            f"frame {next_frame} of task {hello.task_id} is not kept for client {hello.client_id}"
        )


def _unknown_client(client_id: int) -> NotFoundError:
    return NotFoundError(f"Unknown iteration client id {client_id}. It was released")
