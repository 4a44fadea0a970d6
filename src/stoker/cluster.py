"""A dispatcher and workers on this machine, for trials, tests and trainers with idle cores."""

import logging
import os
import threading
import time
import weakref
from collections.abc import Callable
from typing import Self

from stoker.dataset.reports.html_table import html_table
from stoker.errors import FailedPreconditionError, InvalidArgumentError, StokerError
from stoker.service import DispatchServer, WorkerConfig, WorkerServer
from stoker.service.control.control_loop import control_loop
from stoker.service.plurals import plural
from stoker.service.process.shutdown import run_apart
from stoker.service.worker.processes.backoff import Backoff
from stoker.service.worker.processes.forked_process import ForkServer
from stoker.service.worker.processes.process import WorkerProcess
from stoker.service.worker.processes.supervisor_session import SupervisorSession

logger = logging.getLogger(__name__)


class LocalCluster:
    """A dispatcher in this process and workers in child processes, ready after construction.

    It is accepted as the `service` argument of all functions. Child processes need no ``__main__``
    guard and die with this process, even if it is killed. The death of a child is reported to the
    dispatcher immediately. A child that died while it called functions of a dataset is replaced,
    so that the dispatcher can find an element that ends processes; another is not (see
    `add_worker`).

    A cluster ends with its last reference, if not by `stop` or at the end of a ``with`` block.
    Datasets that are distributed to it and their iterators refer to it, in this process; copies in
    other processes do not keep it alive.

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
        self._servers = _Servers(threads, prepares=num_workers > 0 and not threads)
        # The servers do not refer to the cluster, or it would never be collected.
        self._finalizer = weakref.finalize(self, self._servers.stop_soon)
        self._finalizer.atexit = False  # workers die with this process
        self._servers.start(num_workers)

    @property
    def target(self) -> str:
        """Address of the dispatcher for clients, such as ``"grpc://localhost:5050"``."""
        return self._servers.dispatcher.target

    @property
    def workers(self) -> list[str]:
        """Addresses of all workers in the order of their start, including dead ones."""
        return [member.address for member in list(self._servers.members)]

    def num_workers(self) -> int:
        """Return the number of live workers, as the dispatcher counts them."""
        return self._servers.dispatcher.num_workers()

    def add_worker(self) -> str:
        """Start another worker and return its address once it serves.

        Raises:
            FailedPreconditionError: if the cluster is stopped.
            UnavailableError: if the worker died before it served.
        """
        return self._servers.add_worker()

    def kill_worker(self, index: int) -> None:
        """Kill a worker process with SIGKILL, as the kernel does when memory runs out.

        The process is not replaced.

        Args:
            index: position in `workers`.

        Raises:
            FailedPreconditionError: if the workers are threads.
        """
        self._servers.members[index].kill()

    def stop(self) -> None:
        """Stop workers and dispatcher; idempotent. In a forked child it does nothing.

        On a thread of stoker, where a finalizer may call it, it does not wait for the end.
        """
        self._servers.stop()

    def _state(self) -> str:
        if self._servers.stopped:
            return "stopped"
        return f"alive, {plural(self.num_workers(), 'worker')}"

    def __repr__(self) -> str:
        return f"<LocalCluster {self.target} ({self._state()})>"

    def _repr_html_(self) -> str:
        rows = [("dispatcher", self.target), *(("worker", address) for address in self.workers)]
        return html_table((f"LocalCluster ({self._state()})", "address"), rows)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()


class _Servers:
    """The servers of a cluster, which they do not refer to, so that it can be collected.

    Args:
        threads: as of `LocalCluster`.
        prepares: start the server that forks workers beside the dispatcher.

    Attributes:
        dispatcher: the dispatcher.
        members: all workers in the order of their start.
    """

    def __init__(self, threads: bool, *, prepares: bool) -> None:
        self._threads = threads
        self._forks = ForkServer()
        if prepares:
            self._forks.start()
        self._pid = os.getpid()
        self.members: list[_Thread | _Process] = []
        self._stop = threading.Event()
        self._adding = threading.Lock()
        self._stopping = threading.Lock()
        self.dispatcher = DispatchServer(start=False)
        # `add_worker` adds a shard too: no list of addresses fixes their number.
        self.dispatcher.places_grow = True
        self.dispatcher.start()
        self._control = control_loop()
        self._loop = self._control.acquire()
        self._holds_loop = True
        self._session = SupervisorSession(self.dispatcher.target, self._processes)

    @property
    def stopped(self) -> bool:
        """True once `stop` was called."""
        return self._stop.is_set()

    def start(self, num_workers: int) -> None:
        """Start the first workers, and wait until they serve."""
        try:
            if not self._threads:
                self._session.start()
            # All processes are started before the first is waited for.
            for member in [self._add_member() for _ in range(num_workers)]:
                member.wait_serving()
        except BaseException:
            self.stop()
            raise

    def add_worker(self) -> str:
        """Start another worker and return its address once it serves.

        Raises:
            FailedPreconditionError: if the cluster is stopped.
            UnavailableError: if the worker died before it served.
        """
        with self._adding:  # `stop` must see each member that is added
            if self.stopped:
                raise FailedPreconditionError("the cluster is stopped; create a new one")
            member = self._add_member()
        return member.wait_serving()

    def _add_member(self, backoff: Backoff | None = None) -> "_Thread | _Process":
        config = WorkerConfig(dispatcher_address=self.dispatcher.target)
        member: _Thread | _Process
        if self._threads:
            member = _Thread(config)
        else:
            member = _Process(config, self._session, self._forks, self._replace, backoff)
        self.members.append(member)
        return member

    def _replace(self, backoff: Backoff, delay: float) -> None:
        """Start a worker in place of one that a function has ended, on the thread that saw it."""
        if self._stop.wait(delay):
            return
        with self._adding:
            if self.stopped:
                return
            member = self._add_member(backoff)
        try:
            member.wait_serving()
        except StokerError as error:
            if not self.stopped:
                logger.warning("a worker process could not be replaced: %s", error)

    def stop_soon(self) -> None:
        """Stop all after the cluster was collected.

        The thread that collects it may hold any lock, so nothing is done here that takes one.
        """
        if self._pid == os.getpid() and self._holds_loop:
            self._loop.call_soon_threadsafe(self.stop)

    def stop(self) -> None:
        """Stop all, unless this process inherited them; idempotent."""
        if self._pid != os.getpid() or run_apart(self.stop):
            return
        with self._adding:
            self._stop.set()
        with self._stopping:
            self._session.stop()
            # In parallel: each worker may drain for its quiet period.
            stopping = [
                threading.Thread(target=member.stop, name="closing-stoker")
                for member in self.members
            ]
            for thread in stopping:
                thread.start()
            for thread in stopping:
                thread.join()
            # After its children, whose exit statuses it reports.
            self._forks.close()
            self.dispatcher.stop()
            if self._holds_loop:
                self._holds_loop = False
                self._control.release()

    def _processes(self) -> list[WorkerProcess]:
        return [member.process for member in list(self.members) if isinstance(member, _Process)]


class _Thread:
    """A worker on threads of this process."""

    def __init__(self, config: WorkerConfig) -> None:
        self._server = WorkerServer(config)
        self.address = self._server.address

    def wait_serving(self) -> str:
        return self.address

    def kill(self) -> None:
        raise FailedPreconditionError(
            "workers on threads cannot be killed; use LocalCluster(threads=False)"
        )

    def stop(self) -> None:
        self._server.stop()


class _Process:
    """A worker in a child process, and a thread that waits for its death and reports it.

    Args:
        config: of the worker.
        session: reports the death.
        forks: forks the process.
        replace: starts another worker after a delay; called on the thread that waits.
        backoff: of the process that this one replaces.
    """

    def __init__(
        self,
        config: WorkerConfig,
        session: SupervisorSession,
        forks: ForkServer,
        replace: Callable[[Backoff, float], None],
        backoff: Backoff | None,
    ) -> None:
        self.address = ""
        self._session = session
        self._replace = replace
        self._backoff = backoff or Backoff()
        self._began = time.monotonic()
        self.process = WorkerProcess(config, forks=forks)
        self._stopping = self._killed = False
        self._watcher = threading.Thread(target=self._watch, name="stoker-watch", daemon=True)

    def wait_serving(self) -> str:
        """Return its address once it accepts tasks."""
        if not self.address:
            self.address = self.process.wait_serving()
            self._watcher.start()
        return self.address

    def kill(self) -> None:
        self._killed = True
        self.process.kill()

    def stop(self) -> None:
        self._stopping = True
        self.process.stop()
        if self._watcher.ident is not None:
            self._watcher.join()

    def _watch(self) -> None:
        how = self.process.wait()
        if self._stopping:
            return
        if self.process.was_drained() and self.process.exited_cleanly:
            logger.info("worker %s (process %d) was drained", self.address, self.process.pid)
            return
        logger.warning("worker %s (process %d) %s", self.address, self.process.pid, how)
        self._session.report_death(self.process, how)
        calls = [x for each in self.process.lost_calls().by_task.values() for x in each]
        if calls and not self._killed:
            lived = time.monotonic() - self._began
            self._replace(self._backoff, self._backoff.after(lived, calls))
