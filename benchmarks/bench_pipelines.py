"""Local pipelines in one process: stoker, tf.data and Grain in turn.

    python benchmarks/bench_pipelines.py [--rounds 5] [--seconds 2] [--only map ...]

Every measurement is a fresh process that reads for some seconds after a warm second. Rates count
elements before batching. All systems of a row do the same work and check the same checksums:

    map       range -> map(x * x) -> batch(128)
    shuffle   range -> shuffle(10,000) -> batch(128)
    records   1 KB TFRecords with their checksums, one by one
    batches   the same in batches of 100
    padded    token arrays of 1 to 2,048 int64 -> padded batches of 32
    lists     the same from Python lists of ints (tf.data: from the same arrays as above)
    resume    range -> map -> batch(100), continued at element 10,000,000: milliseconds to the
              first batch; the function must not be called before

and the rows of `local/arrays.py`, over arrays in memory: arrays, arrays-shuffled, floats,
floats-shuffled, columns, columns-shuffled, arrays-mapped, lookup and range.
"""

import argparse
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from harness import Figure, Row, in_fresh_process, interleaved, machine, median, repeated, warm_rate
from local import arrays
from local.arrays import Opened

MANY = 10**12
RECORDS = Path(gettempdir()) / "stoker-bench-1kb.tfrecord"
RECORD_COUNT, RECORD_BYTES = 100_000, 1_000
RECORD_ROWS = {"records", "batches"}


def one(_: object) -> int:
    """Count an element as one."""
    return 1


def token_arrays() -> list[np.ndarray[Any, Any]]:
    """Return a thousand texts of 1 to 2,048 tokens."""
    generator = np.random.default_rng(0)
    lengths = generator.integers(1, 2049, 1000)
    return [generator.integers(0, 50_000, length) for length in lengths]


def make_records() -> None:
    """Write the TFRecord file that every system reads, unless it exists."""
    import stoker

    if RECORDS.exists():
        return
    generator = np.random.default_rng(0)
    partial_file = RECORDS.with_suffix(".partial")
    with stoker.TFRecordWriter(str(partial_file)) as writer:
        for _ in range(RECORD_COUNT):
            writer.write(generator.bytes(RECORD_BYTES))
    partial_file.rename(RECORDS)


def stoker_map() -> Opened:
    """Return a map of a Python function over Python ints."""
    import stoker

    return stoker.Dataset.range(MANY).map(lambda x: x * x).batch(128), len


def tensorflow_map() -> Opened:
    """Return the same; TensorFlow traces the function into a graph."""
    import tensorflow as tf

    dataset = tf.data.Dataset.range(MANY).map(lambda x: x * x).batch(128)
    return dataset.as_numpy_iterator(), len


def grain_map(threads: int | None) -> Opened:
    """Return Grain's map dataset, read by `threads` threads; ``None``: its default."""
    import grain

    dataset = grain.MapDataset.range(10**9).map(lambda x: x * x).batch(128)
    if threads is None:
        return dataset.to_iter_dataset(), len
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=threads)
    return dataset.to_iter_dataset(options), len


def stoker_shuffle() -> Opened:
    """Return a shuffle with a buffer of 10,000."""
    import stoker

    return stoker.Dataset.range(MANY).shuffle(10_000).batch(128), len


def tensorflow_shuffle() -> Opened:
    """Return the same."""
    import tensorflow as tf

    return tf.data.Dataset.range(MANY).shuffle(10_000).batch(128).as_numpy_iterator(), len


def stoker_records() -> Opened:
    """Return records one by one, repeated for ever."""
    import stoker

    return stoker.Dataset.tfrecords(str(RECORDS)).repeat(), one


def tensorflow_records() -> Opened:
    """Return the same."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(str(RECORDS)).repeat().as_numpy_iterator(), one


def stoker_batches() -> Opened:
    """Return object arrays of bytes."""
    import stoker

    return stoker.Dataset.tfrecords(str(RECORDS)).repeat().batch(100), len


def tensorflow_batches() -> Opened:
    """Return the same."""
    import tensorflow as tf

    return tf.data.TFRecordDataset(str(RECORDS)).repeat().batch(100).as_numpy_iterator(), len


def stoker_padded() -> Opened:
    """Return arrays that are looked up by number."""
    import stoker

    texts = token_arrays()
    return stoker.Dataset.range(MANY).map(lambda i: texts[i % 1000]).padded_batch(32), len


def stoker_lists() -> Opened:
    """Return lists of Python ints that are looked up by number."""
    import stoker

    texts = [text.tolist() for text in token_arrays()]
    return stoker.Dataset.range(MANY).map(lambda i: texts[i % 1000]).padded_batch(32), len


def tensorflow_padded() -> Opened:
    """Return rows of one ragged tensor; no Python function is called."""
    import tensorflow as tf

    texts = token_arrays()
    ragged = tf.RaggedTensor.from_row_lengths(np.concatenate(texts), [len(text) for text in texts])
    dataset = tf.data.Dataset.from_tensor_slices(ragged).map(lambda row: row).repeat()
    return dataset.padded_batch(32).as_numpy_iterator(), len


def resume_stoker() -> float:
    """Return the milliseconds from a state at element 10,000,000 to the first batch."""
    import stoker

    calls: list[int] = []

    def square(x: int) -> int:
        calls.append(x)
        return x * x

    dataset = stoker.Dataset.range(MANY).map(square).batch(100)
    with dataset.iterator() as first:
        next(first)
        state = first.state_dict() | {"position": 100_000}
    calls.clear()
    began = time.perf_counter()
    iterator = dataset.iterator(state=state)
    assert not calls, "the function was called for skipped elements"
    batch = next(iterator)
    milliseconds = (time.perf_counter() - began) * 1e3
    assert batch[0] == 10_000_000**2
    iterator.close()
    return milliseconds


def read(opened: Callable[[], Opened], seconds: float, warm_seconds: float = 1.0) -> float:
    """Return elements per second, after `warm_seconds` that are not counted."""
    return measure(opened, seconds, warm_seconds).value


def measure(opened: Callable[[], Opened], seconds: float, warm_seconds: float) -> Figure:
    """Return the same with its CPU time."""
    elements, weigh = opened()
    return warm_rate(elements, seconds, weigh, warm_seconds)


ROWS: dict[str, tuple[str, dict[str, Callable[[float], float]]]] = {
    "map": (
        "range -> map -> batch(128), elements/s",
        {
            "stoker": partial(read, stoker_map),
            "tf.data": partial(read, tensorflow_map),
            "Grain": partial(read, partial(grain_map, None)),
            "Grain, no threads": partial(read, partial(grain_map, 0)),
        },
    ),
    "shuffle": (
        "range -> shuffle(10,000) -> batch(128)",
        {"stoker": partial(read, stoker_shuffle), "tf.data": partial(read, tensorflow_shuffle)},
    ),
    "records": (
        "TFRecords of 1 KB, one by one",
        {"stoker": partial(read, stoker_records), "tf.data": partial(read, tensorflow_records)},
    ),
    "batches": (
        "TFRecords of 1 KB, in batches of 100",
        {"stoker": partial(read, stoker_batches), "tf.data": partial(read, tensorflow_batches)},
    ),
    "padded": (
        "arrays of 1 to 2,048 tokens -> padded_batch(32)",
        {"stoker": partial(read, stoker_padded), "tf.data": partial(read, tensorflow_padded)},
    ),
    "lists": (
        "Python lists of 1 to 2,048 tokens -> padded_batch(32)",
        {"stoker": partial(read, stoker_lists), "tf.data": partial(read, tensorflow_padded)},
    ),
    "resume": ("resume at element 10,000,000, milliseconds", {"stoker": lambda _: resume_stoker()}),
    **{
        name: (title, {system: partial(read, opened) for system, opened in systems.items()})
        for name, (title, systems) in arrays.ROWS.items()
    },
}


PIPELINES = {
    "map": stoker_map,
    "shuffle": stoker_shuffle,
    "records": stoker_records,
    "batches": stoker_batches,
    "padded": stoker_padded,
    "lists": stoker_lists,
    **{name: systems["stoker"] for name, (_, systems) in arrays.ROWS.items()},
}


def comparison_rows() -> Iterable[Row]:
    """Return stoker's own rows for `compare.py`."""
    for name, opened in PIPELINES.items():
        prepare = make_records if name in RECORD_ROWS else None
        yield Row(f"pipelines/{name}", partial(measure, opened, warm_seconds=0.2), prepare=prepare)
    yield Row("pipelines/resume", partial(repeated, resume_stoker), 0.5)


def compare(name: str, rounds: int, seconds: float) -> None:
    """Measure one row and print it."""
    title, systems = ROWS[name]
    measured = interleaved(
        {
            system: partial(in_fresh_process, __file__, "--measure", name, system, str(seconds))
            for system in systems
        },
        rounds,
    )
    ours = measured["stoker"]
    print(f"{title:56}{'stoker':>18}{median(ours):>14,.1f}")
    for system, theirs in measured.items():
        if system != "stoker":
            ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
            print(
                f"{'':56}{system:>18}{median(theirs):>14,.1f}"
                f"   stoker is {median(ratios):.2f} x (lowest {min(ratios):.2f})"
            )


def main() -> None:
    """Print the table, or measure one system once in this process."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--only", nargs="*", choices=ROWS, default=list(ROWS))
    parser.add_argument("--measure", nargs=3, metavar=("ROW", "SYSTEM", "SECONDS"))
    options = parser.parse_args()
    if options.measure:
        name, system, seconds = options.measure
        print(ROWS[name][1][system](float(seconds)))
        return
    if RECORD_ROWS & set(options.only):
        make_records()
    print(f"{machine()}; medians of {options.rounds} rounds in one run")
    for name in options.only:
        compare(name, options.rounds, options.seconds)


if __name__ == "__main__":
    main()
