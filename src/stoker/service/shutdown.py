"""Waiting in a server's main thread until somebody asks it to stop."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """SIGTERM, SIGINT or a call of `ask` ends `wait`; the context restores the old handlers.

    A pipe and not a `threading.Event`: a handler runs in the main thread, between any two of its
    instructions, and `Event.set` there can meet the event's own lock held by `Event.wait`.

    Example:
        >>> import os, signal
        >>> with StopRequest() as request:
        ...     os.kill(os.getpid(), signal.SIGTERM)
        ...     request.wait()
    """

    def __enter__(self) -> "StopRequest":
        """Takes over the signals; in the main thread only."""
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._on_signal) for number in _SIGNALS
        }
        return self

    def wait(self) -> None:
        """Returns once asked; at once if that was before."""
        os.read(self._reader, 1)

    def ask(self) -> None:
        """Ends `wait`; from any thread, within the context."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # a full pipe has been asking for long

    def _on_signal(self, _number: int, _frame: FrameType | None) -> None:
        self.ask()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)
