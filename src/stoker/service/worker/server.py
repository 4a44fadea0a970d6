"""The worker as users start it."""

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from stoker.errors import (
    FailedPreconditionError,
)
from stoker.service.config import (
    WorkerConfig,
    config_of,
)
from stoker.service.worker.shell import Shell


class WorkerServer:
    """A worker running in this process.

    Args:
        config: how it runs; or give the fields of `WorkerConfig` by name.
        start: register and serve at once; otherwise call `start`.
        fields: fields of `WorkerConfig`.

    Raises:
        InvalidArgumentError: a field is wrong.
        UnavailableError: the port cannot be bound, or the dispatcher did not answer within
            `dispatcher_timeout_ms`.

    Example:
        >>> from stoker.service import DispatchServer
        >>> with DispatchServer() as dispatcher:
        ...     with WorkerServer(dispatcher_address=dispatcher.target):
        ...         dispatcher.num_workers()
        1

    As `tf.data.experimental.service.WorkerServer`.
    """

    def __init__(
        self, config: WorkerConfig | None = None, *, start: bool = True, **fields: Any
    ) -> None:
        self._config = config_of(WorkerConfig, config, fields)
        self._shell: Shell | None = None
        self._stopped = threading.Event()
        self._lock = threading.Lock()
        self.on_registered: Callable[[int], None] = lambda _: None
        """Called with the worker's id whenever a dispatcher assigns one; set it before `start`."""
        if start:
            self.start()

    @property
    def address(self) -> str:
        """Where trainers read elements: "host:port"."""
        if self._shell is None:
            raise FailedPreconditionError("the worker has no address before start()")
        return self._shell.address

    def start(self) -> None:
        """Registers with the dispatcher and serves; idempotent.

        Raises:
            FailedPreconditionError: it was stopped; make a new one.
        """
        with self._lock:
            if self._stopped.is_set():
                raise FailedPreconditionError("a stopped worker cannot start; make a new one")
            if self._shell is None:
                shell = Shell(self._config, self._gave_up, self.on_registered)
                try:
                    shell.start()
                except BaseException:
                    shell.stop()
                    raise
                self._shell = shell

    def stop(self) -> None:
        """Lets trainers read on for `shutdown_quiet_period_ms`, then leaves the dispatcher."""
        with self._lock:
            if self._shell is not None and not self._stopped.is_set():
                self._stopped.wait(self._config.shutdown_quiet_period_ms / 1000)
                self._shell.stop()
            self._stopped.set()

    def join(self) -> None:
        """Blocks until `stop`, or until the dispatcher could not be reached for too long."""
        self._stopped.wait()

    def num_tasks(self) -> int:
        """How many tasks the worker runs."""
        return 0 if self._shell is None else len(self._shell.logic.tasks)

    def stats(self) -> dict[str, int]:
        """What the worker has in hand: ``tasks``, and of the memory it shares with trainers, bytes.

        ``shared_memory_limit`` is `WorkerConfig.shared_memory_bytes`, ``shared_memory_bytes`` what
        it has of that; of these ``shared_memory_lent`` are with trainers, and
        ``shared_memory_retired`` are not used again, because a trainer that is gone or has forked
        may still see them. ``shared_memory_refused`` counts how often there was no room, so that
        elements were sent as copies: trainers keep what they get, or the limit is small.
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

    def _gave_up(self) -> None:
        threading.Thread(target=self.stop, name="stoker-worker-stop", daemon=True).start()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.stop()
