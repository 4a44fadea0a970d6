"""Random pipelines in which the position of every element is known, as plain values."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

import stoker
from stoker.compat.tf.data.experimental import assert_cardinality
from stoker.dataset.drawn_seeds import salts_by_number, salts_of
from stoker.dataset.tree.node import Context, number
from tests.dataset.trees import Spec, Tree, canonical, digest, flaky, noisy, vector

MOST = 60
"""Trees may be endless: so many positions of each are read."""

_small = st.integers(1, 5)
_tags = st.integers(0, 50)
_calls = st.sampled_from([None, 1, 3, stoker.AUTOTUNE])
_seeds = st.sampled_from([None, 5])

SOURCES = st.one_of(
    st.tuples(st.just("range"), st.integers(-3, 3), st.integers(0, 99), _small),
    st.tuples(st.just("counter"), st.integers(-3, 3)),
    st.tuples(st.just("slices"), st.integers(1, 60)),
    st.tuples(st.just("texts"), st.integers(1, 60)),
    st.tuples(st.just("ragged"), st.integers(1, 30)),
    st.tuples(st.just("random"), _seeds, st.booleans()),
    st.tuples(st.just("load")),
    st.tuples(st.just("from_tensors")),
)
_SELECTIONS = st.one_of(
    st.tuples(st.just("take"), st.sampled_from([-1, 0, 3, 17, 30, 50])),
    st.tuples(st.just("skip"), st.integers(0, 8)),
    st.tuples(st.just("shard"), st.integers(1, 3), st.integers(0, 2)),
    st.tuples(st.just("cache")),
)
_SHUFFLE = st.tuples(st.just("shuffle"), st.sampled_from([1, 2, 5, 12, 100]), _seeds, st.booleans())
ROWS = st.one_of(
    _SELECTIONS,
    _SHUFFLE,
    st.tuples(st.just("repeat"), st.sampled_from([-1, 1, 2, 3])),
    st.tuples(st.just("enumerate"), st.integers(0, 3)),
    st.tuples(st.just("zip"), st.integers(5, 60)),
    st.tuples(st.just("zip_shuffled"), st.integers(5, 60)),
    st.tuples(st.just("prefetch"), st.sampled_from([1, 3])),
)
_FUNCTIONS = st.one_of(
    st.tuples(st.just("map"), _tags, _calls),
    st.tuples(st.just("map_to_pairs"), _tags, _calls),
    st.tuples(st.just("map_and_draw"), _calls),
)
EXCHANGED = st.tuples(
    st.lists(_FUNCTIONS, min_size=1, max_size=2), st.lists(_SELECTIONS, max_size=2), _SHUFFLE
)
UPPER = st.one_of(
    _FUNCTIONS,
    _SELECTIONS,
    st.tuples(st.just("batch"), _small, st.booleans(), _calls),
    st.tuples(st.just("padded_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("ragged_batch"), _tags, _small, st.booleans()),
    st.tuples(st.just("prefetch"), st.sampled_from([1, 3, stoker.AUTOTUNE])),
    st.tuples(st.just("cache_in_files")),
    st.tuples(st.just("snapshot")),
    st.tuples(st.just("assert_cardinality")),
    st.tuples(st.just("enumerate"), st.integers(0, 3)),
)
TABLES = ("range", "counter", "slices", "texts")


@st.composite
def counted_trees(draw: st.DrawFn) -> Tree:
    """A source, steps that order rows, maps before shuffles, and steps that compute."""
    source = draw(SOURCES)
    steps: list[Spec] = []
    if source[0] in TABLES:
        steps += draw(st.lists(ROWS, max_size=4))
        for functions, selections, shuffle in draw(st.lists(EXCHANGED, max_size=3)):
            steps += [*functions, *selections, shuffle]
    steps += draw(st.lists(UPPER, max_size=4))
    return source, steps


def make_files(folder: Path) -> None:
    """The files that the sources read."""
    stoker.Dataset.range(23).map(lambda x: (x, str(x))).save(folder / "counted")


def build(tree: Tree, folder: Path, seed: int | None) -> stoker.Dataset:
    """The pipeline; a seed of None is drawn."""
    dataset = _source(tree[0], folder)
    for spec in tree[1]:
        dataset = _step(dataset, spec, folder)
    return dataset.with_options(stoker.Options(seed=seed))


def _source(spec: Spec, folder: Path) -> stoker.Dataset:
    match spec:
        case ("range", start, stop, step):
            return stoker.Dataset.range(start, stop, step)
        case ("counter", step):
            return stoker.Dataset.counter(5, step)
        case ("slices", count):
            return stoker.Dataset.from_tensor_slices((np.arange(count), np.eye(count, 2)))
        case ("texts", count):
            return stoker.Dataset.from_tensor_slices({"word": [f"word {i}" for i in range(count)]})
        case ("ragged", count):
            rows = [list(range(i % 4)) for i in range(count)]
            return stoker.Dataset.from_tensor_slices(stoker.RaggedArray.from_rows(rows))
        case ("random", seed, again):
            return stoker.Dataset.random(seed, rerandomize_each_iteration=again)
        case ("load",):
            return stoker.Dataset.load(folder / "counted")
        case ("from_tensors",):
            return stoker.Dataset.from_tensors((1, [1.5, 2.5]))
    raise AssertionError(spec)


def _step(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset:
    result = _selecting(dataset, spec)
    result = _computing(dataset, spec) if result is None else result
    result = _keeping(dataset, spec, folder) if result is None else result
    if result is None:
        raise AssertionError(spec)
    return result


def _selecting(dataset: stoker.Dataset, spec: Spec) -> stoker.Dataset | None:
    match spec:
        case ("take", count):
            return dataset.take(count)
        case ("skip", count):
            return dataset.skip(count)
        case ("shard", count, index):
            return dataset.shard(count, index % count)
        case ("repeat", count):
            return dataset.repeat(count)
        case ("shuffle", size, seed, again):
            endless = dataset.cardinality() == stoker.INFINITE_CARDINALITY
            size = stoker.UNKNOWN_CARDINALITY if size == 100 and not endless else size
            return dataset.shuffle(size, seed, again)
        case ("enumerate", start):
            return dataset.enumerate(start)
        case ("zip", count):
            return stoker.Dataset.zip(dataset, stoker.Dataset.range(count))
        case ("zip_shuffled", count):
            return stoker.Dataset.zip(stoker.Dataset.range(count).shuffle(4), dataset)
        case ("assert_cardinality",):
            return dataset.apply(assert_cardinality(dataset.cardinality()))
    return None


def _computing(dataset: stoker.Dataset, spec: Spec) -> stoker.Dataset | None:
    match spec:
        case ("map", tag, calls):
            return dataset.map(flaky(tag, lambda n: n % 1000), calls)
        case ("map_to_pairs", tag, calls):
            return dataset.map(flaky(tag, lambda n: (n % 7, float(n))), calls)
        case ("map_and_draw", calls):
            return dataset.map(noisy, calls)
        case ("batch", size, drop, calls):
            # Elements of any structure would be ragged in two batches of three.
            numbers = dataset.map(lambda *element: digest(*element) % 1000, calls)
            return numbers.batch(size, drop)
        case ("padded_batch", tag, size, drop):
            return dataset.map(flaky(tag, vector)).padded_batch(size, drop_remainder=drop)
        case ("ragged_batch", tag, size, drop):
            return dataset.map(flaky(tag, vector)).ragged_batch(size, drop)
    return None


def _keeping(dataset: stoker.Dataset, spec: Spec, folder: Path) -> stoker.Dataset | None:
    match spec:
        case ("prefetch", size):
            return dataset.prefetch(size)
        case ("cache",):
            return dataset.cache()
        case ("cache_in_files",):
            return dataset.cache(f"{tempfile.mkdtemp(dir=folder)}/cache")
        case ("snapshot",):
            return dataset.snapshot(tempfile.mkdtemp(dir=folder))
    return None


def context_of(dataset: stoker.Dataset, epoch: int) -> Context:
    """The context in which a worker reads an epoch of the dataset."""
    numbers = number(dataset.node)
    given = dataset.options().seed
    return Context(
        seed=dataset._seed.get() if given is None else given,
        seed_given=given is not None,
        salts=salts_by_number(numbers, salts_of(numbers)),
        epoch=(epoch,),
        explicit_epoch=True,
        numbers=numbers,
        make_dataset=stoker.Dataset,
    )


def failed(error: Exception) -> Any:
    """An error's position on a tape, with the number of its element."""
    return ("raised", type(error).__name__, str(error), *getattr(error, "__notes__", ()))


def local_tape(dataset: stoker.Dataset, epoch: int) -> list[Any]:
    """The first positions of a local epoch."""
    found: list[Any] = []
    with dataset.iterator(epoch=epoch) as iterator:
        while len(found) < MOST:
            try:
                found.append(canonical(next(iterator)))
            except StopIteration:
                break
            except Exception as error:
                found.append(failed(error))
    return found
