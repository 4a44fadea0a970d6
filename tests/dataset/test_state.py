"""An iterator's state: small JSON, from which another goes on."""

import json
import pickle
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

import stoker
from stoker import Dataset, Options
from stoker.dataset.iterator import Iterator
from stoker.dataset.nodes.range import Range
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context
from stoker.errors import FailedPreconditionError, InvalidArgumentError, UnimplementedError


def noisy(x: int) -> tuple[int, float]:
    return x, stoker.random.generator().random()


def failing(x: int) -> int:
    if x % 5 == 3:
        raise ValueError(x)
    return x


PIPELINES: dict[str, Callable[[], Dataset]] = {
    "range": lambda: Dataset.range(23),
    "shuffle": lambda: Dataset.range(23).shuffle(7).map(lambda x: x * 3),
    "repeat": lambda: Dataset.range(5).shuffle(5).repeat(4),
    "batch": lambda: Dataset.range(23).map(lambda x: x + 1, num_parallel_calls=2).batch(4),
    "filter": lambda: Dataset.range(40).filter(lambda x: x % 3),
    "random": lambda: Dataset.range(23).map(noisy, num_parallel_calls=stoker.AUTOTUNE),
    "prefetch": lambda: Dataset.range(23).map(lambda x: -x).prefetch(5),
    "cache": lambda: Dataset.range(23).shuffle(23, seed=1).cache(),
    "flat_map": lambda: Dataset.range(7).flat_map(Dataset.range).shuffle(3),
    "errors": lambda: Dataset.range(23).map(failing),
    "generator": lambda: Dataset.from_generator(lambda: iter(range(23))),
}


def read(iterator: Iterator) -> list[Any]:
    found: list[Any] = []
    while True:
        try:
            element = next(iterator)
        except StopIteration:
            return found
        except ValueError as error:
            element = repr(error)
        found.append(element.tolist() if hasattr(element, "tolist") else element)


@pytest.mark.parametrize("name", PIPELINES)
def test_after_every_step_the_state_goes_on_as_if_uninterrupted(name: str) -> None:
    dataset = PIPELINES[name]()
    expected = read(dataset.iterator(epoch=0))
    iterator = dataset.iterator(epoch=0)
    for at in range(len(expected) + 1):
        state = json.loads(json.dumps(iterator.state_dict()))
        with PIPELINES[name]().iterator(state=state) as resumed:
            assert read(resumed) == expected[at:]
        try:
            next(iterator, None)
        except ValueError:
            continue
    iterator.close()


def test_a_resumed_iterators_state_counts_from_the_beginning() -> None:
    dataset = PIPELINES["shuffle"]()
    expected = list(dataset.iterator(epoch=0))
    state = None
    for at in range(len(expected)):
        iterator = PIPELINES["shuffle"]().iterator(state=state) if state else dataset.iterator()
        assert next(iterator) == expected[at]
        state = iterator.state_dict()
        assert state["position"] == at + 1
        iterator.close()


def test_the_state_is_small_json_with_few_fields() -> None:
    dataset = Dataset.range(10**9).shuffle(1000, seed=3).with_options(Options(seed=5))
    iterator = dataset.iterator(epoch=4)
    next(iterator)
    state = iterator.state_dict()
    digests = state.pop("structure"), state.pop("nodes")
    assert state == {"version": 2, "seed": 5, "salts": [], "epoch": 4, "position": 1}
    assert len(json.dumps(state)) + len(json.dumps(digests)) < 200
    iterator.close()


def test_resuming_far_in_calls_no_function_and_opens_no_gap() -> None:
    calls: list[int] = []

    def square(x: int) -> int:
        calls.append(x)
        return x * x

    dataset = Dataset.range(100_000_000).map(square).batch(100)
    state = iter(dataset).state_dict() | {"position": 100_000}
    iterator = dataset.iterator(state=state)
    assert calls == []
    assert next(iterator)[0] == 10_000_000**2
    assert len(calls) <= 200


def test_the_epoch_after_a_resumed_one_is_the_next() -> None:
    original = Dataset.range(30).shuffle(30)
    passes = [list(original) for _ in range(3)]
    iterator = original.iterator(epoch=1)
    state = [next(iterator), iterator.state_dict()][1]
    resumed = Dataset.range(30).shuffle(30)
    assert list(resumed.iterator(state=state)) == passes[1][1:]
    assert list(resumed) == passes[2]


def test_a_resumed_dataset_and_its_siblings_use_the_states_seed() -> None:
    original = Dataset.range(30).shuffle(30, reshuffle_each_iteration=False)
    head = list(original.take(10))
    state = original.skip(10).iterator(epoch=0).state_dict()
    again = Dataset.range(30).shuffle(30, reshuffle_each_iteration=False)
    tail = list(again.skip(10).iterator(state=state))
    assert list(again.take(10)) == head
    assert sorted(head + tail) == list(range(30))


def test_how_fast_it_runs_may_change() -> None:
    state = _after_two(Dataset.range(9).map(abs, num_parallel_calls=2).prefetch(3))
    changed = Dataset.range(9).map(abs, num_parallel_calls=stoker.AUTOTUNE).prefetch(1)
    assert list(changed.iterator(state=state)) == list(range(2, 9))


def _after_two(dataset: Dataset) -> dict[str, Any]:
    with dataset.iterator() as iterator:
        next(iterator)
        next(iterator)
        return iterator.state_dict()


def test_the_state_can_be_read_after_the_end_and_after_close() -> None:
    dataset = Dataset.range(3)
    iterator = iter(dataset)
    assert list(iterator) == [0, 1, 2]
    state = iterator.state_dict()
    assert state["position"] == 3
    iterator.close()
    with pytest.raises(StopIteration):
        next(iterator)
    assert iterator.state_dict() == state


def test_reading_a_closed_iterator_does_not_move_its_state() -> None:
    iterator = iter(Dataset.range(3))
    next(iterator)
    iterator.close()
    with pytest.raises(FailedPreconditionError):
        next(iterator)
    assert iterator.state_dict()["position"] == 1
    assert {"elements": 1, "errors": 0}.items() <= iterator.stats().items()


def test_a_state_at_the_end_has_nothing_left() -> None:
    dataset = Dataset.range(3)
    iterator = iter(dataset)
    assert list(iterator) == [0, 1, 2]
    state = iterator.state_dict()
    assert list(dataset.iterator(state=state)) == []


def test_another_process_goes_on_with_it(tmp_path: Any) -> None:
    dataset = Dataset.range(50).shuffle(20).map(noisy)
    iterator = dataset.iterator()
    for _ in range(17):
        next(iterator)
    state = json.dumps(iterator.state_dict())
    script = tmp_path / "resume.py"
    script.write_text(
        "import json, sys, stoker\n"
        "def noisy(x):\n    return x, stoker.random.generator().random()\n"
        "dataset = stoker.Dataset.range(50).shuffle(20).map(noisy)\n"
        "print(json.dumps(list(dataset.iterator(state=json.loads(sys.argv[1])))))\n"
    )
    done = subprocess.run(
        [sys.executable, script, state], capture_output=True, text=True, check=True, timeout=50
    )
    assert [tuple(pair) for pair in json.loads(done.stdout)] == list(iterator)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"structure": "0" * 32}, "belongs to another dataset"),
        ({"version": 99}, "is of version 99; this stoker reads version 2"),
        ({"position": -1}, "negative position"),
        ({"position": 11}, "is at position 11, but the dataset has 10"),
        ({"position": "5"}, "must be what Iterator.state_dict"),
        ({"seed": 7}, r"seed 7, but Options\(seed=5\) is set"),
        ({"extra": 1}, "must be what Iterator.state_dict"),
    ],
)
def test_a_state_that_does_not_fit_is_refused(change: dict[str, Any], match: str) -> None:
    dataset = Dataset.range(10).with_options(Options(seed=5))
    state = dataset.iterator(epoch=0).state_dict() | change
    with pytest.raises(InvalidArgumentError, match=match):
        dataset.iterator(state=state)


@pytest.mark.parametrize("state", [3, "x", [], {}])
def test_an_invalid_state_is_refused(state: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=r"must be what Iterator\.state_dict"):
        Dataset.range(3).iterator(state=state)


@pytest.mark.parametrize(
    ("other", "differs"),
    [
        (
            lambda: Dataset.range(11).shuffle(3),
            r"`range` \(.*_state.py:\d+\) has other arguments",
        ),
        (
            lambda: Dataset.range(10).shuffle(4),
            r"`shuffle` \(.*\) has other arguments in the state",
        ),
        (lambda: Dataset.range(10), "the state has a `shuffle` after the last node"),
        (
            lambda: Dataset.range(10).take(5),
            r"the state has `shuffle` in place of `take` \(",
        ),
        (lambda: Dataset.range(10).shuffle(3).batch(2), r"`batch` \(.*:\d+\) is not in the state"),
    ],
)
def test_state_of_another_pipeline_names_the_node(
    other: Callable[[], Dataset], differs: str
) -> None:
    state = _after_two(Dataset.range(10).shuffle(3))
    with pytest.raises(InvalidArgumentError, match=f"belongs to another dataset: {differs}"):
        other().iterator(state=state)


def test_state_of_a_long_pipeline_stays_small() -> None:
    def make(last: int) -> Dataset:
        dataset = Dataset.range(10)
        for _ in range(200):
            dataset = dataset.skip(0)
        return dataset.take(last)

    state = _after_two(make(5))
    assert len(json.dumps(state)) < 600
    with pytest.raises(InvalidArgumentError, match="a node after the first 32 differs"):
        make(6).iterator(state=state)
    assert list(make(5).iterator(state=state)) == [2, 3, 4]


def test_state_of_ten_nodes_has_under_400_bytes() -> None:
    dataset = Dataset.range(10**9).shuffle(10**4).map(abs).filter(bool).batch(8).unbatch()
    dataset = dataset.map(abs).padded_batch(8).take(10**6).prefetch(4)
    state = dataset.iterator(epoch=10).state_dict() | {"position": 10**6}
    assert len(json.dumps(state)) < 400


def test_a_state_names_its_epoch() -> None:
    dataset = Dataset.range(3)
    state = dataset.iterator().state_dict()
    with pytest.raises(InvalidArgumentError, match="exclude each other"):
        dataset.iterator(state=state, epoch=1)


def test_an_epoch_over_a_service_has_no_state() -> None:
    with stoker.LocalCluster(num_workers=1, threads=True) as cluster:
        dataset = Dataset.range(3).distribute(cluster, processing_mode="distributed_epoch")
        with dataset.iterator() as iterator:
            assert sorted(iterator) == [0, 1, 2]
            with pytest.raises(UnimplementedError, match=r"`distribute`.* has no state"):
                iterator.state_dict()
        state = Dataset.range(3).iterator().state_dict()
        with pytest.raises(UnimplementedError, match=r"`distribute`.* has no state"):
            dataset.iterator(state=state)


@pytest.mark.parametrize("parallel", [None, 2])
@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_epoch_ends_and_its_state_resumes(
    parallel: int | None, interrupt: type[BaseException]
) -> None:
    interrupts = [interrupt()]

    def function(x: int) -> int:
        if x == 4 and interrupts:
            raise interrupts.pop()
        return x

    dataset = Dataset.range(9).map(function, parallel).enumerate()
    iterator = iter(dataset)
    read: list[Any] = []
    with pytest.raises(interrupt):
        read.extend(iterator)
    for _ in range(2):
        with pytest.raises(FailedPreconditionError, match=r"iterator\(state=iterator.state_dict"):
            next(iterator)
    state = iterator.state_dict()
    assert state["position"] <= 4
    resumed = dataset.iterator(state=state)
    assert list(resumed) == [(x, x) for x in range(state["position"], 9)]


def test_an_order_that_depends_on_threads_has_none() -> None:
    dataset = Dataset.range(3).interleave(Dataset.range, num_parallel_calls=2, deterministic=False)
    with pytest.raises(UnimplementedError, match="with deterministic=False its order depends"):
        dataset.iterator().state_dict()


def test_an_iterator_over_a_bare_stream_has_none() -> None:
    stream: Stream = Range(start=0, stop=1, step=1).open(Context())
    with pytest.raises(UnimplementedError, match="was not created by a Dataset"):
        Iterator(stream).state_dict()


def test_a_pickled_dataset_continues_a_state_of_the_original() -> None:
    dataset = PIPELINES["shuffle"]()
    iterator = dataset.iterator()
    next(iterator)
    twin = pickle.loads(pickle.dumps(dataset))
    assert list(twin.iterator(state=iterator.state_dict())) == list(iterator)
