"""Waiting for many connections with few threads."""

import contextlib
import logging
import select
import socket
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, TypeAlias

from stoker.errors import UnavailableError
from stoker.wire.transports import forking

_log = logging.getLogger(__name__)

MESSAGES = 16
"""Messages that a background thread receives from a connection before serving the next."""

_JOIN_SECONDS = 5.0
_HAND_OVER_SECONDS = 0.0005
_YIELD_SECONDS = 0.0001

Ready: TypeAlias = Callable[[int], None]
"""Handles a descriptor that is ready; the argument is the most messages to receive now."""


# An element every 20 ms costs 340 to 390 us of CPU on a worker: caches are cold after each wait, so
# fewer calls count more than fewer copies. (docs/decisions/030)
class Poller:
    """Calls back for connections that can be received from or sent on.

    A watched descriptor is reported once, to one thread, and again after the next `watch`. So one
    thread at a time handles a connection, however many wait.

    Background threads handle what is ready; so does a thread in `poll`. Linux wakes the thread that
    began to wait last: a consumer in `poll` gets its element without a switch of threads, and while
    it computes, a background thread receives the next. Nothing but speed depends on that order.

    Args:
        name: of the background threads.
        threads: their number.

    Raises:
        UnavailableError: if a thread cannot be started.
    """

    def __init__(self, name: str, threads: int = 1) -> None:
        self._events = _Epoll() if hasattr(select, "epoll") else _Kqueue()
        self._wake, self._waker = socket.socketpair()
        for sock in (self._wake, self._waker):
            sock.setblocking(False)
            forking.close_in_child(sock)
        forking.close_in_child(self._events)
        self._ready: dict[int, Ready] = {}
        self._calls: deque[Ready] = deque()
        self._polled: deque[list[Any]] = deque()
        self._lock = threading.Lock()
        self._users = 1 + threads  # threads that may use the descriptors, and this object
        self._waiting = 0
        self._woken = False
        self._owes_wake = False
        self._busy = False  # the background thread, or one of them, handles something
        self._background: set[int] = set()
        self._closed = False
        self._wake_descriptor = self._wake.fileno()
        self._events.add_wake(self._wake_descriptor)
        self._threads = [
            # No connection has a thread: two polling threads serve any number of clients.
            # (docs/decisions/029)
            threading.Thread(target=self._run, name=name, daemon=True)
            for _ in range(threads)
        ]
        try:
            for thread in self._threads:
                thread.start()
        except RuntimeError as error:
            self._threads = [thread for thread in self._threads if thread.ident is not None]
            self._users = 1 + len(self._threads)
            self.close()
            raise UnavailableError(f"cannot start a thread: {error}") from error

    def watch(self, descriptor: int, ready: Ready, *, writable: bool = False) -> None:
        """Call `ready` once, when `descriptor` is readable, or `writable` if that is requested.

        A later call replaces this call. Of no effect once closed.
        """
        known = descriptor in self._ready
        self._ready[descriptor] = ready
        with contextlib.suppress(ValueError):  # closed
            self._events.arm(descriptor, writable, known)

    def forget(self, descriptor: int) -> None:
        """Watch `descriptor` no more; call it before the descriptor is closed."""
        if self._ready.pop(descriptor, None) is not None:
            with contextlib.suppress(ValueError, OSError):
                self._events.disarm(descriptor)

    def call(self, ready: Ready) -> None:
        """Call `ready` once, on a thread that polls."""
        self._calls.append(ready)
        self._send_wake()

    def poll(self, timeout: float) -> None:
        """Handle the next event, waiting at most `timeout` seconds; also return after `wake`.

        An exception of the handler is raised. If a signal handler raises, no event is lost.
        """
        if self._busy:
            # Let the background thread wait first: the next event then comes to this thread.
            time.sleep(_YIELD_SECONDS)
        with self._lock:
            if self._woken or self._closed:
                self._woken = False
                return
            self._waiting += 1
            self._users += 1
        try:
            if not self._polled:
                self._events.wait(self._polled, timeout)
        finally:
            with self._lock:
                self._waiting -= 1
                self._woken = False
            self._leave()
        while self._polled:
            for descriptor, _ in self._polled[0]:
                self._handle(descriptor, 1)
            self._polled.popleft()

    def wake(self) -> None:
        """Make the `poll` that waits now, or else the next `poll`, return."""
        with self._lock:
            if self._woken:
                return
            self._woken = True
            if not self._waiting:
                return
            if threading.get_ident() in self._background:
                # Sent when this thread is about to wait: the woken thread then waits after this
                # thread, and gets the next event.
                self._owes_wake = True
                return
        self._send_wake()

    def close(self) -> None:
        """End the threads and release the descriptors. Idempotent, from any thread."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        self._send_wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join(_JOIN_SECONDS)
        self._leave()

    def _run(self) -> None:
        found: deque[list[Any]] = deque()
        self._background.add(threading.get_ident())
        while not self._closed:
            self._busy = False
            self._events.wait(found, None)
            self._busy = True
            while found:
                for descriptor, _ in found.popleft():
                    try:
                        self._handle(descriptor, MESSAGES)
                    except Exception:  # noqa: BLE001 - logged; the thread serves the others
                        _log.exception("handling a connection raised")
            if self._owes_wake:
                self._owes_wake = False
                self._send_wake()
        self._send_wake()
        self._leave()

    def _handle(self, descriptor: int, limit: int) -> None:
        if descriptor != self._wake_descriptor:
            ready = self._ready.get(descriptor)
            if ready is not None:
                ready(limit)
            return
        with contextlib.suppress(OSError):
            self._wake.recv(4096)
        if self._closed:
            self._send_wake()  # for the next thread
        if self._woken and self._waiting and limit > 1:
            # The kernel woke this background thread instead of the thread in `poll`.
            self._send_wake()
            time.sleep(_HAND_OVER_SECONDS)
        try:
            call = self._calls.popleft()
        except IndexError:
            return
        if self._calls:
            self._send_wake()  # another thread may handle the next
        call(limit)

    def _send_wake(self) -> None:
        # A full buffer wakes as well, and closed ones have nobody to wake.
        with contextlib.suppress(OSError):
            self._waker.send(b"\0")

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            last = not self._users
        if last:
            for thing in (self._events, self._wake, self._waker):
                thing.close()


class _Epoll:
    """Waits for descriptors; any number of threads at a time."""

    def __init__(self) -> None:
        self._epoll = select.epoll()
        # One-shot: a reported descriptor is armed anew when the message was handled, so that two
        # threads never receive from one connection.
        self._read = select.EPOLLIN | select.EPOLLONESHOT
        self._both = self._read | select.EPOLLOUT

    def add_wake(self, descriptor: int) -> None:
        """Report `descriptor` to one thread each time that data arrives."""
        self._epoll.register(descriptor, select.EPOLLIN | select.EPOLLET)

    def arm(self, descriptor: int, writable: bool, known: bool) -> None:
        """Report `descriptor` once; `known`: it was armed before. ValueError once closed."""
        events = self._both if writable else self._read
        if known:
            self._epoll.modify(descriptor, events)
        else:
            self._epoll.register(descriptor, events)

    def disarm(self, descriptor: int) -> None:
        """Never report `descriptor` again."""
        self._epoll.unregister(descriptor)

    def wait(self, found: "deque[list[Any]]", timeout: float | None) -> None:
        """Append a list of at most one (descriptor, flags)."""
        # In one step of the interpreter: a signal handler that raises between two steps would lose
        # what the kernel has reported.
        found.extend(map(self._epoll.poll, (timeout,), (1,)))

    def close(self) -> None:
        """Release the resources. Idempotent."""
        self._epoll.close()


class _Kqueue:
    """The counterpart of `_Epoll` on macOS; not tested there."""

    def __init__(self) -> None:
        self._kqueue: Any = select.kqueue()  # type: ignore[attr-defined,unused-ignore]
        self._select: Any = select

    def add_wake(self, descriptor: int) -> None:
        flags = self._select.KQ_EV_ADD | self._select.KQ_EV_CLEAR
        self._control(descriptor, self._select.KQ_FILTER_READ, flags)

    def arm(self, descriptor: int, writable: bool, known: bool) -> None:
        flags = self._select.KQ_EV_ADD | self._select.KQ_EV_ENABLE | self._select.KQ_EV_ONESHOT
        self._control(descriptor, self._select.KQ_FILTER_READ, flags)
        if writable:
            self._control(descriptor, self._select.KQ_FILTER_WRITE, flags)

    def disarm(self, descriptor: int) -> None:
        for kind in (self._select.KQ_FILTER_READ, self._select.KQ_FILTER_WRITE):
            with contextlib.suppress(OSError):
                self._control(descriptor, kind, self._select.KQ_EV_DELETE)

    def wait(self, found: "deque[list[Any]]", timeout: float | None) -> None:
        # A kevent is not a pair, but begins with the descriptor.
        events = self._kqueue.control(None, 1, timeout)
        found.append([(event.ident, event.filter) for event in events])

    def close(self) -> None:
        self._kqueue.close()

    def _control(self, descriptor: int, kind: int, flags: int) -> None:
        self._kqueue.control([self._select.kevent(descriptor, kind, flags)], 0)
