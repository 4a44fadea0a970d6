"""Output of the demo: a progress line, and a table with conclusions at the end."""

import time
from dataclasses import dataclass

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn
from rich.table import Table

from stoker.cli.demo.machine import Cores, Usage
from stoker.cli.demo.trainer import Progress as Measured
from stoker.cli.demo.trainer import Result

_PLAIN_EVERY = 5.0


class LiveLine:
    """A title and a progress line of a run, shown while the context is open.

    Without a terminal a line is printed every few seconds.
    """

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
            # A bar that is written to a file would appear once, at the end.
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("", total=total, detail="")

    def __enter__(self) -> "LiveLine":
        self._console.print(self._title, style="bold", highlight=False)
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

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
    # The first report may come before the clock has advanced.
    return measured.images / max(measured.seconds, 1e-9)


def waited(measured: Measured) -> float:
    """Return the share of time in which the device waited."""
    return measured.waited / max(measured.seconds, 1e-9)


@dataclass(frozen=True)
class Run:
    """One training run of the demo: its result, and the CPU use of the machine meanwhile."""

    result: Result
    usage: Usage


def comparison(alone: Run, served: Run, cores: Cores) -> Table:
    """Return the table of both runs, one column each; without rates if the machine was busy."""
    table = Table(title="One epoch, same pipeline, same simulated device", title_style="bold")
    table.add_column("")
    table.add_column("by itself, one core", justify="right")
    table.add_column("through stoker", justify="right", style="bold")
    # CPU times do not depend on the load of the machine; rates do.
    rows = (*_CPU, *(() if is_busy(alone, served, cores) else _RATES), *_IMAGES)
    for name, value in rows:
        table.add_row(name, value(alone), value(served))
    return table


def is_busy(alone: Run, served: Run, cores: Cores) -> bool:
    """Return whether a run had too few cores, so that its rates mean nothing."""
    return cores.are_busy(_others(alone, served))


def _others(alone: Run, served: Run) -> float:
    return max(alone.usage.others, served.usage.others)


def _per_image(seconds: float, run: Run) -> float:
    """Return milliseconds per delivered image."""
    return 1000 * seconds / max(run.result.progress.images, 1)


def _trainer_cpu(run: Run) -> float:
    return _per_image(run.result.progress.cpu, run)


_CPU = (
    ("trainer's CPU per image, ms", lambda run: f"{_trainer_cpu(run):.2f}"),
    ("  with the workers' CPU, ms", lambda run: f"{_per_image(run.usage.cpu, run):.2f}"),
)
_RATES = (
    ("images a second", lambda run: f"{rate(run.result.progress):,.0f}"),
    ("device waited for data", lambda run: f"{waited(run.result.progress):.0%}"),
)
_IMAGES = (
    (
        "images delivered",
        lambda run: f"{run.result.progress.images:,} of {run.result.samples:,}",
    ),
    ("  repeated", lambda run: f"{run.result.repeated:,}"),
    ("  lost", lambda run: f"{run.result.lost:,}"),
    ("digest of their order", lambda run: run.result.order),
)


def conclusions(alone: Run, served: Run, cores: Cores) -> list[str]:
    """Return the sentences below the table."""
    before, after = _trainer_cpu(alone), _trainer_cpu(served)
    moved = (
        f"The trainer's own CPU time fell from {before:.2f} to {after:.2f} ms per image: reading, "
        "decoding and batching moved to the workers. This does not depend on the machine's cores."
    )
    sentences = [moved]
    if served.result.order == alone.result.order:
        sentences.append(
            "A worker was killed, others joined, and the trainer was killed and went on from its "
            "checkpoint: each image arrived once, in the order of the trainer that loads its data "
            "itself."
        )
    if is_busy(alone, served, cores):
        sentences.append(
            f"Other programs used {_others(alone, served):.1f} of this machine's "
            f"{cores.installed} cores, so the images per second would say nothing about stoker "
            "and are left out; run the demo again when they have ended."
        )
    else:
        factor = rate(served.result.progress) / max(rate(alone.result.progress), 1e-9)
        sentences.append(
            f"Trainer and workers shared {cores.usable} cores here, where the device got its "
            f"images {factor:.1f} times as fast. Workers on other machines add their cores."
        )
    return sentences
