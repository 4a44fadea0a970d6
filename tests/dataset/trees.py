"""Random pipelines over every node, as plain values that hypothesis can shrink."""

import tempfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import stoker
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context

Spec = tuple[Any, ...]
Tree = tuple[Spec, list[Spec]]

POSITIONS = 60
"""Trees may be long: so much of each is looked at."""


def make_files(folder: Path) -> None:
    """The files that the file sources read."""
    for letter in "abcdefg":
        (folder / f"{letter}.txt").touch()
    for name, lines in (("one", 7), ("two", 0), ("three", 4)):
        text = "".join(f"{name},{line}\n" for line in range(lines))
        (folder / f"{name}.csv").write_text(text)
        with stoker.TFRecordWriter(folder / f"{name}.tfrecord") as writer:
            for line in range(lines):
                writer.write(f"{name} {line}".encode())

    stoker.Dataset.range(9).map(lambda x: (x, str(x))).save(folder / "saved")


def digest(*elements: Any) -> int:
    """A number that depends on the elements only, so that functions may depend on it."""
    return zlib.crc32(repr([canonical(element) for element in elements]).encode())


def canonical(value: Any) -> Any:
    """The value as something that compares and prints by content."""
    if isinstance(value, tuple | list):
        return tuple(canonical(member) for member in value)
    if isinstance(value, dict):
        return {key: canonical(member) for key, member in value.items()}
    if isinstance(value, np.ndarray):
        return ("array", str(value.dtype), value.shape, value.tolist())
    if isinstance(value, np.generic):
        return ("scalar", str(value.dtype), value.item())
    if isinstance(value, stoker.RaggedArray):
        return ("ragged", canonical(value.values), value.row_splits.tolist())
    return Path(value).name if isinstance(value, str) and "/" in value else value


def flaky(tag: int, result: Callable[[int], Any]) -> Callable[..., Any]:
    """A function of any element that raises for about one in nine."""

    def function(*elements: Any) -> Any:
        number = digest(tag, *elements)
        if number % 9 == 0:
            raise ValueError(f"no {number}")
        return result(number)

    return function


def noisy(*elements: Any) -> int:
    """A function that draws."""
    return digest(*elements) + int(stoker.random.generator().integers(1000))


def generated(count: int) -> Iterator[int]:
    yield from range(100, 100 + count)
    if count % 2:
        raise RuntimeError("the generator broke")


def vector(number: int) -> Any:
    return np.arange(number % 4, dtype=np.int64) + number % 10


def table(number: int) -> Any:
    rows = number % 5
    return np.arange(rows), np.eye(rows, 2)


_tags = st.integers(0, 50)
_small = st.integers(1, 5)
_calls = st.sampled_from([None, 1, 2, 3, stoker.AUTOTUNE])
_seeds = st.sampled_from([None, 5])
# A filter that accepts nothing would never return from an endless source.
_ends = st.sampled_from([3, 150])

SOURCES = st.one_of(
    st.tuples(st.just("range"), st.integers(0, 14)),
    st.tuples(st.just("from_tensors")),
    st.tuples(st.just("from_tensor_slices"), st.integers(0, 9)),
    st.tuples(st.just("columns"), st.integers(1, 30)),
    st.tuples(st.just("list_files"), st.booleans(), st.sampled_from([None, 3])),
    st.tuples(st.just("from_generator"), st.integers(0, 9)),
    st.tuples(st.just("counter"), st.integers(-3, 3), _ends),
    st.tuples(st.just("random"), _seeds, _ends),
    st.tuples(st.just("text_lines"), st.sampled_from([None, 2])),
    st.tuples(st.just("tfrecords"), st.sampled_from([None, 2])),
    st.tuples(st.just("fixed_length_records"), st.integers(1, 3)),
    st.tuples(st.just("csv"), st.booleans()),
    st.tuples(st.just("load")),
)
STEPS = st.one_of(
    st.tuples(st.just("map"), _tags, _calls),
    st.tuples(st.just("map_to_pairs"), _tags, _calls),
    st.tuples(st.just("map_and_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("map_and_draw"), _calls),
    st.tuples(st.just("filter"), _tags),
    st.tuples(st.just("flat_map"), _tags),
    st.tuples(st.just("interleave"), _tags, st.integers(1, 4), st.integers(1, 3), _calls),
    st.tuples(st.just("batch"), _small, st.booleans()),
    st.tuples(st.just("padded_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("ragged_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("unbatch"), _tags),
    st.tuples(st.just("rebatch"), _tags, _small, _small, st.booleans()),
    st.tuples(st.just("window"), _tags, _small, _small, st.integers(1, 2), st.booleans()),
    st.tuples(st.just("group_by_window"), _tags, _small),
    st.tuples(st.just("bucket_by_sequence_length"), _tags),
    st.tuples(st.just("scan"), _tags),
    st.tuples(st.just("take_while"), _tags),
    st.tuples(st.just("unique"), _tags),
    st.tuples(st.just("zip"), SOURCES),
    st.tuples(st.just("concatenate"), st.integers(0, 3)),
    st.tuples(st.just("enumerate"), st.integers(0, 3)),
    st.tuples(st.just("shard"), st.integers(1, 3)),
    st.tuples(st.just("sample_from_datasets"), _seeds, st.booleans()),
    st.tuples(st.just("sample_by_weights"), _seeds),
    st.tuples(st.just("choose_from_datasets"), st.booleans()),
    st.tuples(st.just("rejection_resample"), _tags, _seeds),
    st.tuples(st.just("shuffle"), st.integers(1, 12), _seeds, st.booleans()),
    st.tuples(st.just("repeat"), st.integers(0, 3)),
    st.tuples(st.just("repeat_and_take"), st.integers(0, 40)),
    st.tuples(st.just("take"), st.integers(-1, 12)),
    st.tuples(st.just("skip"), st.integers(0, 12)),
    st.tuples(st.just("ignore_errors")),
    st.tuples(st.just("cache")),
    st.tuples(st.just("cache_in_files")),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("prefetch"), st.sampled_from([1, 3, stoker.AUTOTUNE])),
)
TREES = st.tuples(SOURCES, st.lists(STEPS, max_size=7))


def source(spec: Spec, folder: Path) -> stoker.Dataset:  # noqa: C901
    """The dataset a source's spec stands for."""
    files = [folder / f"{name}.csv" for name in ("one", "two", "three")]
    match spec:
        case ("range", stop):
            return stoker.Dataset.range(stop)
        case ("from_tensors",):
            return stoker.Dataset.from_tensors((1, [1.5, 2.5]))
        case ("from_tensor_slices", count):
            return stoker.Dataset.from_tensor_slices((np.arange(count), np.eye(count, 2)))
        case ("columns", count):
            words = np.array([f"word {i}" for i in range(count)])
            return stoker.Dataset.from_tensor_slices(
                {"word": words, "pair": (np.arange(count, dtype=np.uint8), np.eye(count)[:, ::2])}
            )
        case ("list_files", shuffle, seed):
            return stoker.Dataset.list_files(f"{folder}/?.txt", shuffle=shuffle, seed=seed)
        case ("from_generator", count):
            return stoker.Dataset.from_generator(generated, args=(count,))
        case ("counter", step, end):
            return stoker.Dataset.counter(5, step).take(end)
        case ("random", seed, end):
            return stoker.Dataset.random(seed).take(end)
        case ("text_lines", reads):
            return stoker.Dataset.text_lines(files, num_parallel_reads=reads)
        case ("tfrecords", reads):
            records = [file.with_suffix(".tfrecord") for file in files]
            return stoker.Dataset.tfrecords(records, num_parallel_reads=reads)
        case ("fixed_length_records", size):
            return stoker.Dataset.fixed_length_records(files[2], size, header_bytes=4 % size)
        case ("csv", good):
            return stoker.Dataset.csv(files, [str, int] if good else [int, int])
        case ("load",):
            return stoker.Dataset.load(folder / "saved")
    raise AssertionError(spec)


def nested(number: int) -> stoker.Dataset:
    """A small dataset for the functions that make one."""
    dataset = stoker.Dataset.range(number % 5)
    return dataset.map(flaky(number, lambda n: n % 100)).shuffle(3) if number % 2 else dataset


def step(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset:
    """The dataset with one step more."""
    for family in (_elementwise, _gathering, _combining, _ordering):
        result = family(dataset, spec, folder)
        if result is not None:
            return result
    raise AssertionError(spec)


def _elementwise(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset | None:
    match spec:
        case ("map", tag, calls):
            return dataset.map(flaky(tag, lambda n: n % 1000), calls)
        case ("map_to_pairs", tag, calls):
            return dataset.map(flaky(tag, lambda n: (n % 7, float(n))), calls)
        case ("map_and_batch", tag, size, drop):
            return dataset.map(flaky(tag, lambda n: n % 1000), 2).batch(size, drop)
        case ("map_and_draw", calls):
            return dataset.map(noisy, calls)
        case ("filter", tag):
            return dataset.filter(flaky(tag, lambda n: n % 3))
        case ("flat_map", tag):
            return dataset.flat_map(flaky(tag, nested))
        case ("interleave", tag, cycle, block, calls):
            return dataset.interleave(flaky(tag, nested), cycle, block, calls)
        case ("scan", tag):
            counted = dataset.map(flaky(tag, lambda n: n % 1000))
            return counted.scan(tag, lambda state, n: (state + n, flaky(tag, abs)(state, n)))
        case ("take_while", tag):
            return dataset.take_while(flaky(tag, lambda n: n % 8))
        case ("ignore_errors",):
            return dataset.ignore_errors()
    return None


def _gathering(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset | None:
    match spec:
        case ("batch", size, drop):
            return dataset.batch(size, drop)
        case ("padded_batch", tag, size, drop):
            return dataset.map(flaky(tag, vector)).padded_batch(size, drop_remainder=drop)
        case ("ragged_batch", tag, size, drop):
            return dataset.map(flaky(tag, vector)).ragged_batch(size, drop)
        case ("unbatch", tag):
            return dataset.map(flaky(tag, table)).unbatch()
        case ("rebatch", tag, before, after, drop):
            numbers = dataset.map(flaky(tag, lambda n: n % 1000))
            return numbers.batch(before).rebatch(after, drop)
        case ("window", tag, size, shift, stride, drop):
            numbers = dataset.map(flaky(tag, lambda n: n % 1000))
            return numbers.window(size, shift, stride, drop).flat_map(lambda w: w.batch(size))
        case ("group_by_window", tag, size):
            numbers = dataset.map(flaky(tag, lambda n: n % 1000))
            key = flaky(tag + 1, lambda n: n % 3)
            return numbers.group_by_window(key, lambda key, window: window.batch(size), size)
        case ("bucket_by_sequence_length", tag):
            vectors = dataset.map(flaky(tag, vector))
            return vectors.bucket_by_sequence_length(len, [1, 3], [2, 3, 2])
        case ("unique", tag):
            return dataset.map(flaky(tag, lambda n: n % 6)).unique()
    return None


def _combining(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset | None:
    match spec:
        case ("zip", other):
            return stoker.Dataset.zip(dataset, source(other, folder))
        case ("concatenate", count):
            return dataset.concatenate(dataset.skip(count))
        case ("enumerate", start):
            return dataset.enumerate(start)
        case ("shard", shards):
            return dataset.shard(shards, shards // 2)
        case ("sample_from_datasets", seed, stop):
            several = [dataset, dataset.take(3), dataset.skip(2)]
            return stoker.Dataset.sample_from_datasets(several, [0.5, 0.2, 0.3], seed, stop)
        case ("sample_by_weights", seed):
            weights = stoker.Dataset.range(50).map(lambda n: np.array([n % 2, 1.0]))
            return stoker.Dataset.sample_from_datasets([dataset, dataset.skip(2)], weights, seed)
        case ("choose_from_datasets", stop):
            choices = stoker.Dataset.range(20).map(lambda n: n * 7 % 3)
            several = [dataset, dataset.take(3), dataset.skip(2)]
            return stoker.Dataset.choose_from_datasets(several, choices, stop)
        case ("rejection_resample", tag, seed):
            classes = flaky(tag, lambda n: n % 2)
            return dataset.rejection_resample(classes, [0.5, 0.5], [0.6, 0.4], seed)
    return None


def _ordering(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset | None:
    match spec:
        case ("shuffle", size, seed, reshuffle):
            return dataset.shuffle(size, seed, reshuffle)
        case ("repeat", count):
            return dataset.repeat(count)
        case ("repeat_and_take", count):
            return dataset.repeat().take(count)
        case ("take", count):
            return dataset.take(count)
        case ("skip", count):
            return dataset.skip(count)
        case ("cache",):
            return dataset.cache()
        case ("cache_in_files",):
            return dataset.cache(f"{tempfile.mkdtemp(dir=folder)}/cache")
        case ("snapshot",):
            return dataset.snapshot(tempfile.mkdtemp(dir=folder))
        case ("prefetch", size):
            return dataset.prefetch(size)
    return None


def build(tree: Tree, folder: Path) -> stoker.Dataset:
    """The tree anew: its caches are empty."""
    dataset = source(tree[0], folder)
    for spec in tree[1]:
        dataset = step(dataset, spec, folder)
    return dataset


def opened(dataset: stoker.Dataset) -> Stream:
    """A pass that is the same every time."""
    return open_stream(dataset.node, Context(seed=11, epoch=(2,), make_dataset=stoker.Dataset))


def failed(error: Exception) -> Any:
    """An error's position on a tape."""
    return ("raised", type(error).__name__, str(error))


def positions(stream: Stream, count: int) -> list[Any]:
    """What `count` calls of `next` give, elements and errors; fewer at the end."""
    found: list[Any] = []
    while len(found) < count:
        try:
            found.append(canonical(stream.next()))
        except StopIteration:
            break
        except Exception as error:
            found.append(failed(error))
    return found


def tape_of(tree: Tree, folder: Path) -> list[Any]:
    """The first positions of a fresh pass over a fresh tree."""
    stream = opened(build(tree, folder))
    try:
        return positions(stream, POSITIONS)
    finally:
        stream.close()
