"""A trainer of the soak: ``python -m tests.faults.soak.trainer``.

Each line of its standard input is a `Command`. It prints each element when it has it, so that a
killed trainer has told what it received, and at the end of the epoch a JSON line: an `Outcome`.
"""

import faulthandler
import logging
import os
import signal
import sys
import time

import msgspec

import stoker
from stoker.errors import StokerError


class Command(msgspec.Struct, frozen=True):
    """One epoch to read.

    Attributes:
        target: the dispatcher's address.
        mode: the processing mode.
        elements: elements of the dataset.
        seconds: that a worker takes for an element.
        job_name: as of `distribute`.
        protocol: `data_transfer_protocol` of `distribute`.
    """

    target: str
    mode: str
    elements: int
    seconds: float
    job_name: str | None = None
    protocol: str | None = None


class Outcome(msgspec.Struct, frozen=True):
    """The end of an epoch: the counters of its iterator, and the error that ended it, or ""."""

    stats: dict[str, int]
    error: str = ""


def pipeline(command: Command) -> stoker.Dataset:
    """Return a dataset of pairs: a number, and under OFF the random number of the task, else 0."""

    seconds = command.seconds

    def wait(number: int) -> int:
        time.sleep(seconds)
        return number

    numbers = stoker.Dataset.range(command.elements).map(wait)
    if command.mode == "distributed_epoch":
        return numbers.map(lambda number: (number, 0))
    tokens = stoker.Dataset.range(1).map(lambda _: int.from_bytes(os.urandom(7), "little"))
    return tokens.flat_map(lambda token: numbers.map(lambda number: (number, token)))


def read(command: Command) -> Outcome:
    """Read an epoch and print its elements."""
    dataset = pipeline(command).distribute(
        command.target,
        processing_mode=command.mode,
        job_name=command.job_name,
        data_transfer_protocol=command.protocol,
    )
    with dataset.iterator() as iterator:
        try:
            for number, token in iterator:
                print(number, token, flush=True)
        except StokerError as error:
            return Outcome(_counters(iterator), f"{type(error).__name__}: {error}")
        return Outcome(_counters(iterator))


def _counters(iterator: stoker.Iterator) -> dict[str, int]:
    return {name: count for name, count in iterator.stats().items() if type(count) is int}


def main() -> None:
    """Read an epoch for each line of standard input."""
    faulthandler.register(signal.SIGUSR1)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    for line in sys.stdin:
        outcome = read(msgspec.json.decode(line, type=Command))
        print(msgspec.json.encode(outcome).decode(), flush=True)


if __name__ == "__main__":
    main()
