"""Real dispatchers and workers in this process, and reading from them with a deadline."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import stoker
from stoker.service import DispatchServer, WorkerServer

DEADLINE = 15.0
"""Seconds after which a test gives up: many times what anything here takes."""


class Service(contextlib.ExitStack):
    """A dispatcher on loopback, and the workers it is given; leaving the context stops them all.

    Args:
        workers: how many to start with.
        worker: fields of their `WorkerConfig`.
        dispatcher: fields of `DispatcherConfig`.
    """

    def __init__(
        self, workers: int = 1, *, worker: dict[str, Any] | None = None, **dispatcher: Any
    ) -> None:
        super().__init__()
        self.worker_fields = worker or {}
        self.dispatcher = self.enter_context(DispatchServer(**dispatcher))
        self.target = self.dispatcher.target
        self.workers: list[WorkerServer] = []
        try:
            for _ in range(workers):
                self.add_worker()
        except BaseException:
            self.close()
            raise

    @property
    def address(self) -> tuple[str, int]:
        """Of the control port, for sockets."""
        host, port = self.target.removeprefix("grpc://").rsplit(":", 1)
        return host, int(port)

    @property
    def state(self) -> Any:
        """What the dispatcher knows; for looking at only."""
        return self.dispatcher._shell.logic.state

    @property
    def tasks(self) -> list[Any]:
        """What the workers run; for looking at only."""
        shells: list[Any] = [worker._shell for worker in self.workers]
        return [task for shell in shells for task in shell.logic.tasks.values()]

    def add_worker(self, **fields: Any) -> WorkerServer:
        """Starts one more worker."""
        fields = {**self.worker_fields, **fields}
        server = WorkerServer(dispatcher_address=self.target, **fields)
        self.workers.append(self.enter_context(server))
        return server


def serving_by(transport: str | None) -> dict[str, Any]:
    """Fields of `WorkerConfig` with which a worker serves by `transport`."""
    return {"data_transfer_protocol": "grpc"} if transport == "grpc" else {}


def eventually(condition: Callable[[], Any], deadline: float = DEADLINE) -> bool:
    """Whether `condition` comes true before the deadline; asked again and again."""
    end = time.monotonic() + deadline
    tick = threading.Event()
    while not condition():
        if time.monotonic() > end:
            return False
        tick.wait(0.005)
    return True


class Hung(AssertionError):
    """Reading did not end in time."""


def read(
    dataset: stoker.Dataset | stoker.Iterator, count: int | None = None, deadline: float = DEADLINE
) -> list[Any]:
    """The next `count` elements, or all; an exception raised while reading is raised here.

    A reading that hangs is closed after `deadline` seconds and fails the test, and only it.
    """
    with watched(dataset, deadline) as iterator:
        if count is None:
            return list(iterator)
        return [next(iterator) for _ in range(count)]


@contextlib.contextmanager
def watched(
    dataset: stoker.Dataset | stoker.Iterator, deadline: float = DEADLINE
) -> Iterator[stoker.Iterator]:
    """An iterator that is closed, and the test failed, when the context lasts past the deadline."""
    own = isinstance(dataset, stoker.Dataset)
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
            raise Hung(f"reading did not end within {deadline:g} s") from error
        raise
    finally:
        timer.cancel()
        timer.join()
        if own:
            iterator.close()
    if hung.is_set():
        raise Hung(f"reading did not end within {deadline:g} s")


def outcomes(iterator: stoker.Iterator) -> list[Any]:
    """All that comes, in order: elements, and the exceptions in their places."""
    found: list[Any] = []
    while True:
        try:
            found.append(next(iterator))
        except StopIteration:
            return found
        except Exception as error:
            found.append(error)


def free_port() -> int:
    """A port nobody listens on now."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return int(probe.getsockname()[1])
