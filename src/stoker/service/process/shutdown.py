"""Stop of a server: requests to stop, and threads that must not wait for a stop."""

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)
_ASKED = 0


class StopRequest:
    """A stop request by SIGTERM, SIGINT or `ask`; the context restores the old handlers.

    The request uses a pipe, not a `threading.Event`: a handler runs in the main thread between any
    two instructions, where `Event.wait` may hold the lock that `Event.set` needs. Python itself
    writes the signal's number to the pipe (`signal.set_wakeup_fd`), because the kernel may deliver
    the signal to another thread, as after SIGCONT; then the main thread would wait on before
    running a handler.

    Example:
        >>> import os, signal
        >>> with StopRequest() as request:
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     request.wait()
    """

    def __enter__(self) -> "StopRequest":
        """Install the signal handlers; in the main thread only."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup_before = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._on_signal) for number in _SIGNALS
        }
        return self

    def wait(self) -> None:
        """Block until a stop is requested; return immediately after an earlier request."""
        while os.read(self._reader, 1)[0] not in (_ASKED, *_SIGNALS):
            continue  # another signal, which has a handler of its own

    def ask(self) -> None:
        """Request a stop, from any thread, within the context."""
        try:
            os.write(self._writer, bytes([_ASKED]))
        except BlockingIOError:
            return  # the pipe is full of earlier requests

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        """Do nothing: Python has written the number to the pipe."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(self._wakeup_before)
        os.close(self._reader)
        os.close(self._writer)


_PREFIX = "stoker-"
"""The names of the threads that run the control loop, pipelines and connections."""


def run_apart(work: Callable[[], None]) -> bool:
    """Return whether `work`, which waits for threads of stoker, must not run on this thread.

    A finalizer runs on the thread that collects the garbage. On a thread of stoker, `work` runs on
    a new thread instead. While the interpreter exits, `work` does not run: threads do not continue.
    """
    if sys.is_finalizing():
        return True
    if not threading.current_thread().name.startswith(_PREFIX):
        return False
    with suppress(RuntimeError):  # the interpreter begins to exit
        threading.Thread(target=work, name="closing-stoker").start()
    return True
