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
from typing import Any, NamedTuple

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


class LatestStatus(NamedTuple):
    """The last answer of the dispatcher, and its failure since then.

    Attributes:
        status: the last answer; ``None`` before the first.
        failure: the reason that the last call failed, or "".
        failed_at: the time of the first failure since the last answer, on the monotonic clock.
    """

    status: Status | None = None
    failure: str = ""
    failed_at: float = 0.0


class StatusPoller(threading.Thread):
    """Ask for the status at an interval until stopped; a dispatcher may be unreachable for a while.

    Attributes:
        latest: replaced as a whole after each call, since another thread reads it.
        fatal: the error after which asking again has no use.
    """

    def __init__(self, address: str, interval: float) -> None:
        super().__init__(name="stoker-top", daemon=True)
        self.latest = LatestStatus()
        self.fatal: StokerError | None = None
        self._address = address
        self._interval = interval
        self._stopped = threading.Event()

    def run(self) -> None:
        """Ask until stopped."""
        while not self._stopped.is_set():
            try:
                self.latest = LatestStatus(get_status(self._address))
            except UnavailableError as error:
                failed_at = self.latest.failed_at or time.monotonic()
                self.latest = LatestStatus(self.latest.status, str(error), failed_at)
            except StokerError as error:
                self.fatal = error
                return
            # Otherwise the screen would show the last state for ever.
            except Exception as error:  # noqa: BLE001
                self.fatal = StokerError(f"internal error: {type(error).__name__}: {error}")
                return
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
            latest = poller.latest
            # A failure is shown with the seconds since then, which pass without an answer.
            seconds = int(time.monotonic() - latest.failed_at) if latest.failure else 0
            if (state := (latest, console.size, seconds)) != drawn:
                live.update(frame(latest, where, console.height), refresh=True)
                drawn = state


def frame(latest: LatestStatus, where: str, height: int) -> RenderableType:
    """Return what the screen shows."""
    parts: list[RenderableType] = [Text(f"stoker top {where}", "dim")]
    if latest.failure:
        passed = duration(time.monotonic() - latest.failed_at)
        parts.append(Text(f"no answer for {passed}: {latest.failure}", "red"))
    if latest.status is not None:
        most = max(3, (height - FIXED_ROWS) // 3)
        parts += [Text(summary(latest.status)), status_tables(latest.status, most)]
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
