"""Dispatchers and workers in this process, and functions that read from them with a deadline."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any

import stoker
from stoker.errors import FailedPreconditionError
from stoker.service import DispatchServer, WorkerServer
from stoker.service.process.clock import CLOCK, Clock

DEADLINE = 30.0
"""Default deadline in seconds: many times what any test needs on an idle machine. With 18 processes
for two cores, epochs of 3,000 elements of 1 ms each took more than 15 s."""


class Service(contextlib.ExitStack):
    """A dispatcher on loopback with its workers; leaving the context stops them.

    Args:
        workers: the number to start.
        worker: fields of their `WorkerConfig`.
        clock: of all; that of clients if they are given the dispatcher in place of its `target`.
        dispatcher: fields of `DispatcherConfig`.
    """

    def __init__(
        self,
        workers: int = 1,
        *,
        worker: dict[str, Any] | None = None,
        clock: Clock = CLOCK,
        **dispatcher: Any,
    ) -> None:
        super().__init__()
        self.worker_fields = worker or {}
        self.clock = clock
        self.dispatcher = self.enter_context(DispatchServer(clock=clock, **dispatcher))
        self.target = self.dispatcher.target
        self.workers: list[WorkerServer] = []
        try:
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool | None:
        # Time that a test has stopped goes on, for whatever waits.
        with getattr(self.clock, "running", contextlib.nullcontext)():
            return super().__exit__(kind, error, traceback)

    @property
    def address(self) -> tuple[str, int]:
        """Host and port of the control port, for sockets."""
        host, port = self.target.removeprefix("grpc://").rsplit(":", 1)
        return host, int(port)

    @property
    def state(self) -> Any:
        """The dispatcher's state, read only."""
        return self.dispatcher._shell.logic.state

    @property
    def tasks(self) -> list[Any]:
        """The workers' tasks, read only."""
        shells: list[Any] = [worker._shell for worker in self.workers]
        return [task for shell in shells for task in shell.logic.tasks.values()]

    def add_worker(self, **fields: Any) -> WorkerServer:
        """Start one more worker; `fields` are fields of its `WorkerConfig`."""
        fields = {**self.worker_fields, **fields}
        server = WorkerServer(dispatcher_address=self.target, clock=self.clock, **fields)
        self.workers.append(self.enter_context(server))
        return server

    def restart_dispatcher(self, **fields: Any) -> None:
        """Replace the dispatcher by one at its port; `fields` are those of its `work_dir`."""
        port = self.address[1]
        self.dispatcher.stop()
        self.dispatcher = self.enter_context(DispatchServer(port=port, clock=self.clock, **fields))


def worker_fields_for(transport: str | None) -> dict[str, Any]:
    """Return the fields of `WorkerConfig` with which a worker serves by `transport`."""
    return {"data_transfer_protocol": "grpc"} if transport == "grpc" else {}


def eventually(condition: Callable[[], Any], deadline: float = DEADLINE) -> bool:
    """Poll `condition` until it is true, and return whether it was before the deadline."""
    end = time.monotonic() + deadline
    tick = threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        tick.wait(0.005)
    return True


class ReadTimeoutError(AssertionError):
    """A read exceeded its deadline."""


def read(
    dataset: stoker.Dataset | stoker.Iterator, count: int | None = None, deadline: float = DEADLINE
) -> list[Any]:
    """Return the next `count` elements, or all; an exception raised while reading is raised here.

    A read that hangs is closed after `deadline` seconds and fails only this test.
    """
    with iterator_with_deadline(dataset, deadline) as iterator:
        if count is None:
            return list(iterator)
        return [next(iterator) for _ in range(count)]


@contextlib.contextmanager
def iterator_with_deadline(
    dataset: stoker.Dataset | stoker.Iterator, deadline: float = DEADLINE
) -> Iterator[stoker.Iterator]:
    """Yield an iterator; if the context exceeds the deadline, close it and fail the test."""
    created_here = isinstance(dataset, stoker.Dataset)
    iterator = dataset.iterator() if isinstance(dataset, stoker.Dataset) else dataset
    hung = threading.Event()

    def give_up() -> None:
        hung.set()
        iterator.close()

    timer = threading.Timer(deadline, give_up)
    timer.start()
    try:
        yield iterator
    except BaseException as error:
        if hung.is_set():
            raise ReadTimeoutError(f"reading did not end within {deadline:g} s") from error
        raise
    finally:
        timer.cancel()
        timer.join()
        if created_here:
            iterator.close()
    if hung.is_set():
        raise ReadTimeoutError(f"reading did not end within {deadline:g} s")


@contextlib.contextmanager
def reading(iterator: stoker.Iterator) -> Iterator[list[Any]]:
    """Read on a thread until the context ends, then close; yield the list of elements."""
    found = [next(iterator)]

    def run() -> None:
        with contextlib.suppress(FailedPreconditionError):  # closed while it is read
            found.extend(iterator)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield found
    finally:
        iterator.close()
        thread.join()


def outcomes(iterator: stoker.Iterator) -> list[Any]:
    """Return all elements in order, with raised exceptions in their positions."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


def tasks_of(iterator: stoker.Iterator) -> int:
    """Return the number of tasks of which an iterator over a job has been notified."""
    stream: Any = iterator._stream
    return len(stream._logic.tasks.cursors)


@contextlib.contextmanager
def raw_server(*answers: Callable[[socket.socket], None]) -> Iterator[int]:
    """Call `answers` in turn with accepted connections, the last with all later; yield the port.

    The connections stay open unless the answer closes them.
    """
    turns = list(answers)
    with contextlib.ExitStack() as connections:
        listener = connections.enter_context(socket.create_server(("127.0.0.1", 0)))

        def accept() -> None:
            while True:
                try:
                    connection, _ = listener.accept()
                except OSError:
                    return
                connections.callback(connection.close)
                with contextlib.suppress(OSError):
                    (turns.pop(0) if len(turns) > 1 else turns[0])(connection)

        thread = threading.Thread(target=accept)
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            with contextlib.suppress(OSError):
                listener.shutdown(socket.SHUT_RDWR)
            thread.join()


def close(connection: socket.socket) -> None:
    """Answer by closing the connection."""
    connection.shutdown(socket.SHUT_RDWR)
