"""`WorkerServer`: a worker in this process."""

import logging
import math
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from stoker.dataset.streams.calls.call_recorder import CallRecorder
from stoker.errors import FailedPreconditionError, StokerError
from stoker.service.config import WorkerConfig, config_of
from stoker.service.keys import WorkerIdentity
from stoker.service.process.clock import CLOCK, Clock
from stoker.service.process.open_files import raise_open_files_limit
from stoker.service.process.shutdown import run_apart
from stoker.service.worker.shell import REFUSED_SECONDS, Shell

logger = logging.getLogger("stoker.worker")


class WorkerServer:
    """A worker that runs in this process.

    Args:
        config: its configuration; or give the fields of `WorkerConfig` by name.
        start: register and serve immediately; otherwise call `start`.
        clock: times heartbeats, waits and timeouts.
        fields: fields of `WorkerConfig`.

    Raises:
        InvalidTypeError: if `config` is not a WorkerConfig, or a field does not exist or is
            missing.
        InvalidArgumentError: if a field is not valid.
        UnavailableError: if the port cannot be bound, or the dispatcher does not answer within
            `dispatcher_timeout_ms`.
        FailedPreconditionError: if the dispatcher speaks another version of the protocol, or the
            server at its address another protocol.

    Example:
        >>> from stoker.service import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     with WorkerServer(dispatcher_address=dispatcher.target):
        ...         dispatcher.num_workers()
        1

    It raises the limit of open files of this process: each trainer's connection has a descriptor.

    It stops by itself when the dispatcher is unreachable for `dispatcher_timeout_ms`, when the
    dispatcher refuses it for a minute, after an internal error, and when an operator has drained it
    (`stoker drain`). Then `join` returns; after a refusal and an error `failure` is that.

    As `tf.data.experimental.service.WorkerServer`.
    """

    def __init__(
        self,
        config: WorkerConfig | None = None,
        start: bool = True,
        *,
        clock: Clock = CLOCK,
        **fields: Any,
    ) -> None:
        self._clock = clock
        self._config = config_of(WorkerConfig, config, fields)
        self._shell: Shell | None = None
        self._stopped = threading.Event()
        self._stop_now = threading.Event()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.on_registered: Callable[[WorkerIdentity], None] = lambda _: None
        """Called with the worker's id and key whenever a dispatcher assigns them; set it before
        `start`."""
        self.calls: CallRecorder | None = None
        """Records the calls of user functions in flight; set it before `start`."""
        self.refused_seconds = REFUSED_SECONDS
        """Time after which a refused worker stops; set it before `start`."""
        self.on_draining: Callable[[], None] = lambda: None
        """Called when an operator has asked the worker to drain; set it before `start`."""
        self._drains = False
        self.failure: StokerError | None = None
        """The error by which the worker has stopped, if it has."""
        if start:
            self.start()

    @property
    def address(self) -> str:
        """Address at which trainers read elements: "host:port"."""
        if self._shell is None:
            raise FailedPreconditionError("the worker has no address before start()")
        return self._shell.address

    def start(self) -> None:
        """Register with the dispatcher and serve; idempotent.

        Raises:
            FailedPreconditionError: if it was stopped.
        """
        with self._lock:
            if self._stopped.is_set():
                raise FailedPreconditionError(
                    "Server cannot be started after it has been stopped. Make a new WorkerServer"
                )
            if self._shell is None:
                # Each trainer's connection has a descriptor, and many systems allow 1024.
                raise_open_files_limit()
                shell = Shell(
                    self._config,
                    self._shell_ended,
                    self.on_registered,
                    refused_seconds=self.refused_seconds,
                    calls=self.calls,
                    asked_to_drain=self._asked_to_drain,
                    clock=self._clock,
                )
                try:
                    shell.start()
                except BaseException:
                    shell.stop()
                    raise
                self._shell = shell

    def stop(self, *, drain: bool = True) -> None:
        """Deliver the computed elements, then leave the dispatcher; idempotent.

        For at most `shutdown_quiet_period_ms` the worker begins no splits, finishes those it has
        begun, and serves its buffers until trainers have read them. Under "parallel_epochs" it
        computes no more. On a thread of stoker, where a finalizer may call it, it does not wait for
        the end.

        Args:
            drain: False stops immediately, also a `stop` that is in progress on another thread.
        """
        if run_apart(partial(self.stop, drain=drain)):
            return
        # Before the lock, which a `stop` that drains on another thread holds.
        if not drain:
            self._stop_now.set()
        with self._lock:
            if self._shell is not None and not self._stopped.is_set():
                quiet = self._config.shutdown_quiet_period_ms / 1000
                if quiet and not self._stop_now.is_set():
                    self._shell.drain(quiet, self._stop_now)
                self._shell.stop()
            self._stop_now.set()  # for `_drain_and_stop`
            self._stopped.set()
            self._ended.set()

    def join(self) -> None:
        """Block until `stop`, or until the worker stops by itself."""
        self._ended.wait()

    @property
    def refused(self) -> bool:
        """True if the dispatcher refuses the worker."""
        return self._shell is not None and self._shell.refused is not None

    def num_tasks(self) -> int:
        """Return the number of tasks that the worker runs."""
        return 0 if self._shell is None else len(self._shell.logic.tasks)

    def stats(self) -> dict[str, int]:
        """Return the number of ``tasks``, and bytes of the memory shared with trainers.

        ``shared_memory_limit`` is `WorkerConfig.shared_memory_bytes`, ``shared_memory_bytes`` the
        part that is allocated. Of this ``shared_memory_lent`` is used by trainers, and
        ``shared_memory_retired`` is not used again, because a trainer that has disconnected or
        forked may still map it. ``shared_memory_refused`` counts the times that there was no room,
        so that elements were sent as copies: trainers keep elements, or the limit is small.
        """
        found = {"tasks": self.num_tasks()}
        pool = None if self._shell is None else self._shell.segments
        if pool is not None:
            shared = pool.statistics()
            found |= {
                "shared_memory_limit": shared["max_bytes"],
                "shared_memory_bytes": shared["bytes"],
                "shared_memory_lent": shared["lent_bytes"],
                "shared_memory_retired": shared["retired_bytes"],
                "shared_memory_refused": shared["refused"],
            }
        return found

    def _asked_to_drain(self) -> None:
        """Stop when trainers have read the computed elements, however long they take."""
        if not self._drains:
            self._drains = True
            self._start_closing(self._drain_and_stop)

    def _drain_and_stop(self) -> None:
        with self._lock:  # `start` has it: the request may arrive before it returns
            shell = self._shell
        if shell is not None:
            logger.info("an operator asks the worker at %s to drain", self.address)
            self.on_draining()
            # Without a limit, which `stop` has: an operator does not kill the process after it.
            shell.drain(math.inf, self._stop_now)
            self.stop(drain=False)

    def _shell_ended(self, error: StokerError | None) -> None:
        self.failure = error
        self._ended.set()
        self._start_closing(partial(self.stop, drain=False))

    @staticmethod
    def _start_closing(target: Callable[[], None]) -> None:
        """Stop on a thread, which does not keep a program from its end."""
        try:
            threading.Thread(target=target, name="closing-stoker", daemon=True).start()
        except RuntimeError as cannot_start:  # `join` has returned: a worker process exits now
            logger.error("the worker cannot be stopped: %s", cannot_start)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()
