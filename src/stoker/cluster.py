"""A dispatcher and workers on this machine, for trials, tests and trainers with idle cores."""

import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, Self

from stoker.errors import FailedPreconditionError, InvalidArgumentError
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service.keys import WorkerIdentity
from stoker.service.own_threads import run_apart
from stoker.service.worker.process import WorkerProcess
from stoker.service.worker.supervisor_session import SupervisorSession

logger = logging.getLogger(__name__)


class LocalCluster:
    """A dispatcher in this process and workers in child processes, ready after construction.

    It is accepted as the `service` argument of all functions. Child processes need no ``__main__``
    guard and die with this process, even if it is killed. The death of a child is reported to the
    dispatcher immediately; the child is not replaced (see `add_worker`).

    Args:
        num_workers: initial number of workers, 0 or more.
        threads: run the workers in this process, on threads: elements are passed without being
            encoded, but Python functions share one GIL with the trainer.

    Raises:
        InvalidArgumentError: if `num_workers` is negative.
        UnavailableError: if a worker process died before it served.

    Example:
        >>> import stoker
        >>> with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
        ...     sorted(stoker.Dataset.range(5).distribute(cluster))
        [0, 1, 2, 3, 4]
    """

    def __init__(self, num_workers: int = 2, *, threads: bool = False) -> None:
        if num_workers < 0:
            raise InvalidArgumentError(f"`num_workers` must be 0 or more, got {num_workers}")
        self._start: Callable[[WorkerConfig], _Member] = _Thread if threads else self._start_process
        self._members: list[_Member] = []
        self._stopped = False
        self._dispatcher = DispatchServer(start=False)
        self._dispatcher.places_grow = True
        self._dispatcher.start()
        self._session = SupervisorSession(self.target, self._active_workers)
        try:
            if not threads:
                self._session.start()
            self._members = [self._start(self._config()) for _ in range(num_workers)]
            for member in self._members:
                member.wait_serving()
        except BaseException:
            self.stop()
            raise

    @property
    def target(self) -> str:
        """Address of the dispatcher for clients, such as ``"grpc://localhost:5050"``."""
        return self._dispatcher.target

    @property
    def workers(self) -> list[str]:
        """Addresses of all workers in the order of their start, including dead ones."""
        return [member.address for member in self._members]

    def num_workers(self) -> int:
        """Return the number of live workers, as the dispatcher counts them."""
        return self._dispatcher.num_workers()

    def add_worker(self) -> str:
        """Start another worker and return its address once it serves.

        Raises:
            FailedPreconditionError: if the cluster is stopped.
            UnavailableError: if the worker died before it served.
        """
        if self._stopped:
            raise FailedPreconditionError("the cluster is stopped; create a new one")
        member = self._start(self._config())
        self._members.append(member)
        return member.wait_serving()

    def kill_worker(self, index: int) -> None:
        """Kill a worker process with SIGKILL, as the kernel does when memory runs out.

        Args:
            index: position in `workers`.

        Raises:
            FailedPreconditionError: if the workers are threads.
        """
        self._members[index].kill()

    def stop(self) -> None:
        """Stop workers and dispatcher; idempotent.

        On a thread of stoker, where a finalizer may call it, it does not wait for the end.
        """
        if run_apart(self.stop):
            return
        self._stopped = True
        self._session.stop()
        stopping = [
            threading.Thread(target=member.stop, name="closing-stoker") for member in self._members
        ]
        for thread in stopping:
            thread.start()
        for thread in stopping:
            thread.join()
        self._dispatcher.stop()

    def _start_process(self, config: WorkerConfig) -> "_Process":
        return _Process(config, self._session)

    def _active_workers(self, seconds: float) -> list[WorkerIdentity]:
        """Return the workers whose processes were active in the past `seconds`."""
        active = [member.active_worker(seconds) for member in list(self._members)]
        return [identity for identity in active if identity is not None]

    def _config(self) -> WorkerConfig:
        return WorkerConfig(dispatcher_address=self.target)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()


class _Member(Protocol):
    """One worker of the cluster."""

    address: str

    def active_worker(self, seconds: float) -> WorkerIdentity | None:
        """Return the identity of a worker whose lease this process renews, if it is active."""

    def wait_serving(self) -> str:
        """Return its address once it accepts tasks."""

    def kill(self) -> None:
        """Kill it with SIGKILL."""

    def stop(self) -> None:
        """Stop it in any state."""


class _Thread:
    """A worker on threads of this process."""

    def __init__(self, config: WorkerConfig) -> None:
        self._server = WorkerServer(config)
        self.address = self._server.address

    def active_worker(self, seconds: float) -> WorkerIdentity | None:
        return None  # it renews its own lease

    def wait_serving(self) -> str:
        return self.address

    def kill(self) -> None:
        raise FailedPreconditionError(
            "workers on threads cannot be killed; use LocalCluster(threads=False)"
        )

    def stop(self) -> None:
        self._server.stop()


class _Process:
    """A worker in a child process, and a thread that waits for its death and reports it."""

    def __init__(self, config: WorkerConfig, session: SupervisorSession) -> None:
        self.address = ""
        self._session = session
        self._process = WorkerProcess(config)
        self._stopping = False
        self._watcher = threading.Thread(target=self._watch, name="stoker-watch", daemon=True)

    def active_worker(self, seconds: float) -> WorkerIdentity | None:
        return self._process.identity if self._process.active_within(seconds) else None

    def wait_serving(self) -> str:
        if not self.address:
            self.address = self._process.wait_serving()
            self._watcher.start()
        return self.address

    def kill(self) -> None:
        self._process.kill()

    def stop(self) -> None:
        self._stopping = True
        self._process.stop()
        if self._watcher.ident is not None:
            self._watcher.join()

    def _watch(self) -> None:
        how = self._process.wait()
        if self._stopping:
            return
        if self._process.was_drained() and self._process.exited_cleanly:
            logger.info("worker %s (process %d) was drained", self.address, self._process.pid)
            return
        identity = self._process.identity
        logger.warning("worker %s (process %d) %s", self.address, self._process.pid, how)
        if identity is not None:
            self._session.report_death(identity, how, self._process.lost_calls())
