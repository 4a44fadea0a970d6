"""`stoker top`: the state of a service, drawn again and again."""

import contextlib
import os
import select
import sys
import termios
import threading
import time
import tty
from collections.abc import Iterator
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.text import Text

from stoker.cli.commands import fail
from stoker.cli.status.asking import get_status
from stoker.cli.status.quantities import duration
from stoker.cli.status.view import status_tables, summary
from stoker.errors import StokerError, UnavailableError
from stoker.service.status import Status

KEY_SECONDS = 0.1
"""Longest time until a pressed key, or an answer of the dispatcher, is noticed."""

FIXED_ROWS = 16
"""Rows of the screen besides those of workers, epochs and clients."""


class StatusPoller(threading.Thread):
    """Ask for the status at an interval until stopped; a dispatcher may be unreachable for a while.

    Attributes:
        status: the last answer; ``None`` before the first.
        failure: the reason that the last call failed, or "".
        failed_at: the time of the first failure since the last answer, on the monotonic clock.
        fatal: the error after which asking again has no use.
        version: changes with each answer and failure.
    """

    def __init__(self, address: str, interval: float) -> None:
        super().__init__(name="stoker-top", daemon=True)
        self.status: Status | None = None
        self.failure = ""
        self.failed_at = 0.0
        self.fatal: StokerError | None = None
        self.version = 0
        self._address = address
        self._interval = interval
        self._stopped = threading.Event()

    def run(self) -> None:
        """Ask until stopped."""
        while not self._stopped.is_set():
            try:
                self.status = get_status(self._address)
                self.failure = ""
            except UnavailableError as error:
                self.failed_at = self.failed_at if self.failure else time.monotonic()
                self.failure = str(error)
            except StokerError as error:
                self.fatal = error
                return
            # Otherwise the screen would show the last state for ever.
            except Exception as error:  # noqa: BLE001
                self.fatal = StokerError(f"internal error: {type(error).__name__}: {error}")
                return
            self.version += 1
            self._stopped.wait(self._interval)

    def stop(self) -> None:
        """End the thread after the call in flight."""
        self._stopped.set()


def run_top(address: str, interval: float) -> None:
    """Draw the state of a service until q or Ctrl-C."""
    console = Console()
    if not console.is_terminal:
        fail("`stoker top` needs a terminal; print the state once with `stoker status`")
    poller = StatusPoller(address, interval)
    poller.start()
    try:
        # Ctrl-C is the usual end.
        with contextlib.suppress(KeyboardInterrupt), _keys_unbuffered():
            _draw_until_quit(console, poller, f"{address}, every {interval:g} s; q ends")
    finally:
        poller.stop()
    if poller.fatal is not None:
        raise poller.fatal


def _draw_until_quit(console: Console, poller: StatusPoller, where: str) -> None:
    with Live(console=console, screen=True, auto_refresh=False) as live:
        drawn: Any = None
        while poller.fatal is None and not _quit_pressed():
            # A failure is shown with the seconds since then, which pass without an answer.
            passed = time.monotonic() if poller.failure else 0.0
            if (state := (poller.version, console.size, passed)) != drawn:
                live.update(frame(poller, where, console.height), refresh=True)
                drawn = state


def frame(poller: StatusPoller, where: str, height: int) -> RenderableType:
    """Return what the screen shows."""
    parts: list[RenderableType] = [Text(f"stoker top {where}", "dim")]
    if poller.failure:
        passed = duration(time.monotonic() - poller.failed_at)
        parts.append(Text(f"no answer for {passed}: {poller.failure}", "red"))
    if poller.status is not None:
        most = max(3, (height - FIXED_ROWS) // 3)
        parts += [Text(summary(poller.status)), status_tables(poller.status, most)]
    return Group(*parts)


def _quit_pressed() -> bool:
    """Wait for a key for `KEY_SECONDS`; return whether it is q."""
    if not sys.stdin.isatty():
        time.sleep(KEY_SECONDS)
        return False
    if not select.select([sys.stdin], [], [], KEY_SECONDS)[0]:
        return False
    keys = os.read(sys.stdin.fileno(), 64)
    return not keys or b"q" in keys.lower()


@contextlib.contextmanager
def _keys_unbuffered() -> Iterator[None]:
    """Deliver keys when they are pressed; restore the terminal at the end."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(sys.stdin)
    try:
        tty.setcbreak(sys.stdin)
        yield
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
