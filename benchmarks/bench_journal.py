"""The cost of the dispatcher's journal: the same epochs with it and without.

    python benchmarks/bench_journal.py [--rounds 5] [--epochs 40] [--directory DIR]

Two dispatchers, one with a journal in a directory and one without, each in a process of its own
with one worker, read in turn by this process over TCP, under DYNAMIC:

- `iter()` to the first element of a small pipeline, and to its first batch of ten, for which the
  worker begins splits three times (medians over the epochs of all rounds),
- elements per second of an epoch of 4,096 splits of one element each, which take 0.2 ms,
- elements per second of an epoch over 10,000 files of 100 bytes, a split each.

The time of an fdatasync of 4 KB in the directory is printed, too: each commit waits for one.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import interleaved, machine

import stoker

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from tests.faults.soak.processes import DISPATCHER, WORKER, Server

SPLITS = 4_096
FILES = 10_000


@contextmanager
def served(directory: Path, *, journal: bool) -> Iterator[str]:
    """Run a dispatcher with one worker; yield its address."""
    directory.mkdir()
    fields: dict[str, Any] = (
        {"fault_tolerant_mode": True, "work_dir": str(directory / "journal")} if journal else {}
    )
    with contextlib.ExitStack() as stack:
        dispatcher = Server(DISPATCHER, "dispatcher", fields, directory / "dispatcher.log")
        stack.callback(dispatcher.end)
        address = f"localhost:{dispatcher.serve()['port']}"
        own = {"dispatcher_address": address}
        worker = Server(WORKER, "worker", own, directory / "worker.log")
        stack.callback(worker.end)
        worker.serve()
        for _ in dynamic(stoker.Dataset.range(10), address):  # both are warm
            pass
        yield address


def dynamic(dataset: stoker.Dataset, address: str) -> stoker.Dataset:
    """Return the dataset read under DYNAMIC, over TCP."""
    return dataset.distribute(
        address, processing_mode="distributed_epoch", data_transfer_protocol="tcp"
    )


def sync_milliseconds(directory: Path) -> float:
    """Return the median time of an fdatasync of 4 KB."""
    measured = []
    with (directory / "sync").open("wb", buffering=0) as file:
        for _ in range(100):
            file.write(bytes(4096))
            began = time.perf_counter()
            os.fdatasync(file.fileno())
            measured.append((time.perf_counter() - began) * 1e3)
    return statistics.median(measured)


def first_elements(dataset: stoker.Dataset, address: str, epochs: int) -> list[float]:
    """Return the milliseconds from `iter()` to the first element, of several epochs."""
    distributed = dynamic(dataset, address)
    measured = []
    for _ in range(epochs):
        began = time.perf_counter()
        with distributed.iterator() as iterator:
            next(iterator)
            measured.append((time.perf_counter() - began) * 1e3)
    return measured


def wait(number: int) -> int:
    """Return `number` after 0.2 ms."""
    time.sleep(0.0002)
    return number


def rate(dataset: stoker.Dataset, address: str) -> list[float]:
    """Return the elements per second of an epoch."""
    began = time.perf_counter()
    count = sum(1 for _ in dynamic(dataset, address))
    return [count / (time.perf_counter() - began)]


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--epochs", type=int, default=40)
    parser.add_argument("--directory", type=Path, help="of the journal; default: a temporary one")
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        base = Path(
            stack.enter_context(
                tempfile.TemporaryDirectory(prefix="journal-bench-", dir=options.directory)
            )
        )
        files = base / "files"
        files.mkdir()
        for number in range(FILES):
            (files / f"{number}.txt").write_text("x" * 100)
        pattern = str(files / "*.txt")
        numbers = stoker.Dataset.range(SPLITS).map(wait)
        texts = stoker.Dataset.list_files(pattern).map(lambda path: Path(path).read_text())
        addresses = {
            name: stack.enter_context(served(base / name, journal=name == "with"))
            for name in ("without", "with")
        }
        sync = sync_milliseconds(base)
        print(f"{machine()}, {options.rounds} rounds, fdatasync {sync:.1f} ms")
        print(
            "| | without | with | difference or ratio |\n| --- | ---: | ---: | ---: |", flush=True
        )

        def compare(measure: Callable[[str], list[float]]) -> tuple[float, float]:
            systems = {
                name: lambda address=address: measure(address)
                for name, address in addresses.items()
            }
            found = interleaved(systems, options.rounds)
            without, journaled = (
                statistics.median(value for each in found[name] for value in each)
                for name in ("without", "with")
            )
            return without, journaled

        squares = stoker.Dataset.range(1_000).map(lambda x: x * x)
        for title, dataset in {"element": squares, "batch": squares.batch(10)}.items():
            without, journaled = compare(
                lambda address, dataset=dataset: first_elements(dataset, address, options.epochs)
            )
            print(
                f"| first {title}, ms | {without:.1f} | {journaled:.1f} "
                f"| {journaled - without:+.1f} |",
                flush=True,
            )
        for title, dataset in (
            (f"{SPLITS:,} splits of a range", numbers),
            (f"{FILES:,} files", texts),
        ):
            without, journaled = compare(lambda address, dataset=dataset: rate(dataset, address))
            print(
                f"| {title}, elements/s | {without:,.0f} | {journaled:,.0f} "
                f"| {journaled / without:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
