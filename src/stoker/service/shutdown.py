"""Wait for a request to stop, in the main thread of a server."""

import os
import signal
from types import FrameType, TracebackType
from typing import Any

_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class StopRequest:
    """A stop request by SIGTERM, SIGINT or `ask`; the context restores the old handlers.

    It uses a pipe, not a `threading.Event`: a handler runs in the main thread between any two
    instructions, where `Event.wait` may hold the lock that `Event.set` needs.

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
        self._before: dict[int, Any] = {
            number: signal.signal(number, self._on_signal) for number in _SIGNALS
        }
        return self

    def wait(self) -> None:
        """Block until a stop is requested; return immediately if it already was."""
        os.read(self._reader, 1)

    def ask(self) -> None:
        """Request a stop, from any thread, within the context."""
        try:
            os.write(self._writer, b"\0")
        except BlockingIOError:
            return  # the pipe is full of earlier requests

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
