"""Many small text files, interleaved line by line."""

from collections.abc import Iterable
from functools import partial
from pathlib import Path
from tempfile import gettempdir

from harness import Figure, Row, loop_rate

import stoker

FOLDER = Path(gettempdir()) / "stoker-bench-lines"
FILES, LINES = 64, 200


def make_files() -> None:
    """Write the files that are missing."""
    FOLDER.mkdir(exist_ok=True)
    for number in range(FILES):
        path = FOLDER / f"{number:03}.txt"
        if not path.exists():
            partial_file = path.with_suffix(".partial")
            partial_file.write_text("".join(f"file {number} line {n}\n" for n in range(LINES)))
            partial_file.rename(path)


def measure(calls: int | None, seconds: float) -> Figure:
    """Return lines per second of 64 files of 200 lines, 16 open at a time."""
    files = stoker.Dataset.list_files(str(FOLDER / "*.txt"), shuffle=False)
    lines = files.interleave(
        stoker.Dataset.text_lines,
        cycle_length=16,
        block_length=1,
        num_parallel_calls=calls,
    )
    return loop_rate(lines.repeat(), seconds)


def comparison_rows() -> Iterable[Row]:
    """Return a row without parallel calls and one with AUTOTUNE."""
    for name, calls in (("sequential", None), ("AUTOTUNE", stoker.AUTOTUNE)):
        yield Row(f"interleave/{name}", partial(measure, calls), prepare=make_files)
