"""The thread pool of the process, and the leases by which streams use it.

A stream that computes on threads acquires a `Lease` for at most `limit` concurrent calls. The pool
has as many threads as its largest lease allows, starts them when calls wait, and ends with its last
lease.

Nested pipelines cannot deadlock: a thread that waits for a call that no thread has started runs the
call itself (`Lease.help`), so every waiting thread waits for code that is running.
"""

import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

Call = Callable[[], None]

# Idle threads end immediately; the limit is for a release by the garbage collector, inside the
# pool's lock.
_JOIN_SECONDS = 1.0

HELP_SECONDS = 0.05
"""Interval at which a waiting consumer checks whether to run a call itself."""

_here = threading.local()
_numbers = itertools.count()


def in_pool_thread() -> bool:
    """Return whether the calling thread belongs to the pool; pipelines opened there run inline."""
    return getattr(_here, "pool", False)


def available_cpus() -> int:
    """Return the number of cores this process may use, the default number of threads."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0)) or 1
    return os.cpu_count() or 1


class Lease:
    """Permission to run at most `limit` concurrent calls, started in the order of submission.

    All state is guarded by the pool's lock. `release` drops the calls that have not started and
    never waits for a running call.
    """

    def __init__(self, pool: "_Pool", limit: int) -> None:
        self.pool = pool
        self.limit = limit
        self.waiting: deque[Call] = deque()
        self.running = 0
        self.tickets = 0
        """Number of threads that were requested and have not arrived."""
        self.released = False

    def submit(self, calls: Iterable[Call]) -> None:
        """Let the pool run `calls`. A call must not raise and must deliver its result itself."""
        with self.pool.lock:
            if not self.released:
                self.waiting.extend(calls)
                self.pool.ask_for_threads(self)

    def help(self, wanted: Callable[[Any], bool]) -> bool:
        """Run the oldest waiting call in this thread, if `wanted` and allowed by the limit.

        Returns:
            True if a call was run.
        """
        # Nested pipelines cannot deadlock: a thread that waits for a call that no thread has
        # started runs the call itself. (docs/decisions/087)
        with self.pool.lock:
            if not self.waiting or self.running >= self.limit or not wanted(self.waiting[0]):
                return False
            call = self.waiting.popleft()
            self.running += 1
        try:
            call()
        finally:
            with self.pool.lock:
                self.running -= 1
                self.pool.ask_for_threads(self)
        return True

    def resize(self, limit: int) -> None:
        """Change the limit of concurrent calls; running calls are not stopped."""
        with self.pool.lock:
            if not self.released:
                self.limit = limit
                self.pool.fit()
                self.pool.ask_for_threads(self)

    def release(self) -> None:
        """Release the lease; idempotent. The last lease waits for idle threads."""
        if self.pool.forked():
            return
        with self.pool.lock:
            self.released = True
            self.waiting.clear()
            idle = self.pool.remove(self)
        # Outside of the lock, which the threads need to end.
        for thread in idle:
            thread.join(_JOIN_SECONDS)


class _Pool:
    """Daemon threads that serve leases in turn; ends with its last lease."""

    def __init__(self) -> None:
        # Re-entrant: the garbage collector may close a stream while this thread holds the lock.
        self.lock = threading.RLock()
        self._work = threading.Condition(self.lock)
        self._tickets: deque[Lease] = deque()
        self._leases: set[Lease] = set()
        self._threads: set[threading.Thread] = set()
        self._idle: set[threading.Thread] = set()
        self._busy: set[threading.Thread] = set()
        self._size = 0
        self._pid = os.getpid()
        self.closed = False

    def forked(self) -> bool:
        """Return whether the pool was inherited by fork; then its lock may be locked."""
        return self._pid != os.getpid()

    def lease(self, limit: int) -> Lease:
        lease = Lease(self, limit)
        with self.lock:
            self._leases.add(lease)
            self.fit()
        return lease

    def remove(self, lease: Lease) -> list[threading.Thread]:
        """Remove a lease; return the idle threads to join if no lease is left."""
        self._leases.discard(lease)
        # A pool that has closed never opens again: its threads end without looking.
        self.closed = self.closed or not self._leases
        self.fit()
        return list(self._threads - self._busy) if self.closed else []

    def fit(self) -> None:
        """Let as many threads live as the largest lease allows; called with the lock held."""
        self._size = max((lease.limit for lease in self._leases), default=0)
        if len(self._threads) > self._size:
            self._work.notify_all()  # idle threads beyond the size end

    def ask_for_threads(self, lease: Lease) -> None:
        """Add a ticket for each call that could start now; called with the lock held."""
        wanted = min(len(lease.waiting), lease.limit - lease.running) - lease.tickets
        for _ in range(wanted):
            lease.tickets += 1
            self._tickets.append(lease)
            if len(self._tickets) <= len(self._idle):
                self._work.notify()
            elif len(self._threads) < self._size:
                self._start_thread()

    def _start_thread(self) -> None:
        name = f"stoker-pool-{next(_numbers)}"
        thread = threading.Thread(target=self._serve, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError:
            # The system refuses more threads. Waiting threads run the calls (`help`), so the
            # work continues more slowly.
            return
        self._threads.add(thread)

    def _serve(self) -> None:
        _here.pool = True
        this = threading.current_thread()
        while (lease := self._await_ticket(this)) is not None:
            self._run_calls(lease, this)

    def _await_ticket(self, this: threading.Thread) -> Lease | None:
        with self.lock:
            while not self.closed and len(self._threads) <= self._size:
                if self._tickets:
                    lease = self._tickets.popleft()
                    lease.tickets -= 1
                    return lease
                self._idle.add(this)
                self._work.wait()
                self._idle.discard(this)
            self._threads.discard(this)
            if self._tickets:  # the notification was meant for these tickets
                self._work.notify()
            return None

    def _run_calls(self, lease: Lease, this: threading.Thread) -> None:
        """Run calls of `lease` until none waits, or another lease waits for a thread."""
        lock = self.lock
        lock.acquire()
        try:
            while lease.waiting and lease.running < lease.limit:
                call = lease.waiting.popleft()
                lease.running += 1
                self._busy.add(this)
                lock.release()
                try:
                    call()
                finally:
                    del call
                    lock.acquire()
                    self._busy.discard(this)
                    lease.running -= 1
                if self._tickets:
                    break
            self.ask_for_threads(lease)
        finally:
            lock.release()


_pool: _Pool | None = None
_guard = threading.RLock()


def lease(limit: int) -> Lease:
    """Return a lease on the pool for at most `limit` concurrent calls; the caller releases it."""
    global _pool
    with _guard:
        while True:
            pool = _pool
            if pool is None or pool.closed:
                _pool = pool = _Pool()
            made = pool.lease(limit)
            if not pool.closed:  # the garbage collector may release the last lease just before
                return made


def _start_afresh() -> None:
    """Replace the pool in a forked child, which has no threads and maybe locked locks."""
    global _pool, _guard
    _pool = None
    _guard = threading.RLock()
    _here.pool = False


os.register_at_fork(after_in_child=_start_afresh)
