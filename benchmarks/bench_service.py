"""The service: stoker, tf.data service and the machine's limits, measured in turn in one run.

    python benchmarks/bench_service.py [--only scalars ...] [--subjects TCP ...] [--rounds 3]

Every measurement runs in fresh processes: a server process with dispatcher and worker (stoker's
worker is a child process, as with `stoker worker`), and a trainer process that reads for some
seconds after a warm-up. All subjects of a row are measured in turn, round by round, so a ratio
compares neighbours in time. The elements are the same for both systems:

    scalars    range
    kilobytes  range -> map(128 int64, all written)
    images     range -> map(150,528 bytes, all written)
    batches    images -> batch(64)
    arrays     from_tensor_slices(10,000 images of 28 x 28) -> shuffle -> repeat -> batch(128)
    photos     range -> map(copy of one of 64 photographs); compressed rows
    jpeg       files -> decode, crop, resize, flip (Pillow) -> batch(64): the whole pipeline

Trainers read every byte with `elements.fold`, except in the rows named "unread". Limits do the same
work without a service: `socket pair` writes each element anew, sends it to another process over
TCP, and reads every byte there; `memcpy` only copies.
"""

import argparse
import sys
import time
from collections.abc import Iterable
from functools import partial

import bench_jpeg
from harness import Figure, interleaved, machine, slug
from harness import Row as ComparisonRow
from service.measuring import Measured, measure
from service.rows import ROWS
from service.servers import serve
from service.table import HEADER, LEGEND, lines_of, verdicts
from service.trainers import train


def measure_stoker(name: str, label: str, seconds: float) -> Figure:
    """Return the rate, or the milliseconds, of one of stoker's lines.

    Raises:
        RuntimeError: if the measurement failed.
    """
    # `measure` multiplies by the row's factor, which `seconds` already includes.
    measured = measure(__file__, name, label, seconds / ROWS[name].duration)
    if measured.error:
        raise RuntimeError(measured.error)
    if ROWS[name].first:
        return Figure(measured.milliseconds, "ms", measured.cpu_microseconds)
    return Figure(measured.rate, cpu=measured.cpu_microseconds)


BY_DEFAULT = {
    "scalars": ("TCP", "shared memory", "gRPC", "TCP, DYNAMIC"),
    "kilobytes": ("TCP",),
    "images": ("TCP", "shared memory", "gRPC"),
    "batches": ("TCP", "shared memory"),
    "arrays": ("TCP", "shared memory", "TCP, DYNAMIC"),
    "scalars-busy": ("TCP",),
    "images-busy": ("shared memory",),
    "images-compressed": ('TCP, "AUTO"',),
    "images-2-workers": ("TCP",),
    "first": ("TCP",),
    "jpeg": ("TCP",),
}
"""Lines that `compare.py` measures when no row is named; the others would take another hour."""


def comparison_rows() -> Iterable[ComparisonRow]:
    """Return stoker's own lines for `compare.py`."""
    for name, row in ROWS.items():
        for subject in row.subjects:
            if subject.system.startswith("stoker"):
                label = subject.label.removeprefix("stoker, ")
                yield ComparisonRow(
                    f"service/{name}/{slug(label)}",
                    partial(measure_stoker, name, subject.label),
                    seconds=min(row.duration, 2.0),
                    prepare=bench_jpeg.photos,
                    default=label in BY_DEFAULT.get(name, ()),
                )


def compare(names: list[str], parts: list[str], rounds: int, seconds: float) -> None:
    """Measure the rows; print each when it is done, and the targets reached at the end."""
    bench_jpeg.photos()
    began = time.monotonic()
    print(f"{machine()}; medians of {rounds} rounds of {seconds:g} s in one run")
    print(LEGEND, HEADER, sep="\n", flush=True)
    measured: dict[str, dict[str, list[Measured]]] = {}
    for name in names:
        labels = [subject.label for subject in ROWS[name].subjects]
        subjects = {
            label: partial(measure, __file__, name, label, seconds)
            for label in labels
            if not parts or any(part.lower() in label.lower() for part in parts)
        }
        if subjects:
            measured[name] = interleaved(subjects, rounds)
            print(*lines_of(name, measured[name]), sep="\n", flush=True)
    print("", *verdicts(measured), f"in {(time.monotonic() - began) / 60:.1f} min", sep="\n")


def main() -> None:
    """Print the table, or run a server's or a trainer's process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--subjects", nargs="*", default=[], help="parts of the subjects' names")
    parser.add_argument("--serve", nargs=2, metavar=("SYSTEM", "WORKERS"))
    parser.add_argument("--train", nargs=3, metavar=("ROW", "SUBJECT", "SECONDS"))
    options = parser.parse_args()
    if options.serve:
        serve(*options.serve)
    elif options.train:
        name, label, seconds = options.train
        train(name, label, float(seconds))
    else:
        compare(options.only, options.subjects, options.rounds, options.seconds)
    sys.stdout.flush()


if __name__ == "__main__":
    main()
