"""Output of the demo: a progress line, and a table with conclusions at the end."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from stoker.cli.demo.trainer import Progress as Measured
from stoker.cli.demo.trainer import Result

_PLAIN_EVERY = 5.0


class LiveLine:
    """A title and a progress line of a run; without a terminal, a line every few seconds."""

    def __init__(self, console: Console, title: str, total: int) -> None:
        self._console = console
        self._title = title
        self._total = total
        self._printed_at = time.monotonic()
        self._bar = Progress(
            SpinnerColumn(),
            BarColumn(bar_width=None),
            TextColumn("{task.completed:,.0f}/{task.total:,.0f}"),
            TextColumn("{task.fields[detail]}"),
            console=console,
            expand=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, detail="")

    @contextmanager
    def shown(self) -> Iterator["LiveLine"]:
        """Show the line while the context is open."""
        self._console.print(self._title, style="bold", highlight=False)
        with self._bar:
            yield self

    def update(self, completed: int, detail: str = "") -> None:
        """Move the bar."""
        self._bar.update(self._task, completed=completed, detail=detail)
        if not self._console.is_terminal and time.monotonic() - self._printed_at >= _PLAIN_EVERY:
            self._printed_at = time.monotonic()
            text = f"  {completed:,}/{self._total:,}  {detail}".rstrip()
            self._console.print(text, highlight=False)

    def event(self, text: str) -> None:
        """Print an event above the line."""
        self._console.print(f"  {text}", style="yellow", highlight=False)


def progress_text(measured: Measured) -> str:
    """Return the rate and the share of time the device has waited."""
    return f"{rate(measured):,.0f} images/s, device waits {waited(measured):.0%}"


def rate(measured: Measured) -> float:
    """Return images per second."""
    return measured.images / max(measured.seconds, 1e-9)


def waited(measured: Measured) -> float:
    """Return the share of time in which the device waited."""
    return measured.waited / max(measured.seconds, 1e-9)


def comparison(alone: Result, served: Result) -> Table:
    """Return the table of both runs, one column each."""
    table = Table(title="One epoch, same pipeline, same simulated device", title_style="bold")
    table.add_column("")
    table.add_column("by itself, one core", justify="right")
    table.add_column("through stoker", justify="right", style="bold")
    for name, value in _ROWS:
        table.add_row(name, value(alone), value(served))
    return table


def _cpu_per_thousand(result: Result) -> str:
    return f"{1000 * result.progress.cpu / max(result.progress.images, 1):.2f}"


_ROWS = (
    ("images a second", lambda r: f"{rate(r.progress):,.0f}"),
    ("device waited for data", lambda r: f"{waited(r.progress):.0%}"),
    ("trainer's CPU s per 1,000 images", _cpu_per_thousand),
    ("images delivered", lambda r: f"{r.progress.images:,} of {r.samples:,}"),
    ("  repeated", lambda r: f"{r.repeated:,}"),
    ("  lost with the killed worker", lambda r: f"{r.lost:,}"),
)


def conclusions(alone: Result, served: Result, cores: int) -> list[str]:
    """Return the sentences below the table."""
    sentences = []
    if served.lost:
        sentences.append(
            f"The {served.lost:,} lost images were in the memory of the killed worker, finished "
            "or begun; in this mode (distributed_epoch) nothing is ever delivered twice."
        )
    factor = rate(alone.progress) and rate(served.progress) / rate(alone.progress)
    sentences.append(
        f"Here trainer and workers share this machine's {cores} cores, and the device got its "
        f"data {factor:.1f} times as fast; with workers on more machines the rate grows with "
        "their cores, while the trainer's own CPU time does not change."
    )
    return sentences
