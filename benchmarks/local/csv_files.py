"""CSV files: plain, with quoted fields, and with numbers only; row by row and in batches."""

from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from harness import Figure, Row, loop_rate, warm_rate

import stoker

FOLDER = Path(gettempdir()) / "stoker-bench-csv"
LINES = 50_000
BATCH = 256


def plain_line(number: int, values: Any) -> str:
    """Return a line with an integer, a number and two words."""
    return f"{number},{values[0]:.6f},word{number % 997},label {number % 10}"


def quoted_line(number: int, values: Any) -> str:
    """Return the same with every text quoted; one in eight holds a delimiter and quotes."""
    text = f'a ""{number % 997}"", b' if number % 8 == 0 else f"word{number % 997}"
    return f'{number},{values[0]:.6f},"{text}","label {number % 10}"'


def numbers_line(_: int, values: Any) -> str:
    """Return a line with ten numbers."""
    return ",".join(f"{value:.6f}" for value in values)


MIXED = [int, float, str, "missing"]
FILES: dict[str, tuple[Callable[[int, Any], str], list[Any]]] = {
    "plain": (plain_line, MIXED),
    "quoted": (quoted_line, MIXED),
    "numbers": (numbers_line, [np.float32] * 10),
}


def make_file(name: str) -> None:
    """Write the file if it is missing."""
    path = FOLDER / f"{name}.csv"
    if path.exists():
        return
    FOLDER.mkdir(exist_ok=True)
    values = np.random.default_rng(0).random((LINES, 10)).tolist()
    line, _ = FILES[name]
    text = "".join(f"{line(number, row)}\n" for number, row in enumerate(values))
    partial_file = path.with_suffix(".partial")
    partial_file.write_text(text)
    partial_file.rename(path)


def measure_single(name: str, seconds: float) -> Figure:
    """Return lines per second, read one by one by `for`."""
    dataset = stoker.Dataset.csv(str(FOLDER / f"{name}.csv"), FILES[name][1])
    return loop_rate(dataset.repeat(), seconds)


def measure_batches(name: str, seconds: float) -> Figure:
    """Return lines per second in batches."""
    dataset = stoker.Dataset.csv(str(FOLDER / f"{name}.csv"), FILES[name][1])
    batches = dataset.repeat().batch(BATCH)
    return warm_rate(batches, seconds, lambda columns: len(columns[0]), seconds / 5)


def comparison_rows() -> Iterable[Row]:
    """Return two rows for every file."""
    for name in FILES:
        prepare = partial(make_file, name)
        yield Row(f"csv/{name}/single", partial(measure_single, name), prepare=prepare)
        yield Row(f"csv/{name}/batches", partial(measure_batches, name), prepare=prepare)
