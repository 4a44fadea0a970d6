"""Datasets that read deterministic epochs: draws, states and lengths as without a service.

A stream in place of the client's computes what workers compute for its hello.
"""

import itertools
import json
import pickle
from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import numpy as np
import pytest

import stoker
from stoker import Dataset, Options
from stoker.dataset.drawn_seeds import salts_by_number
from stoker.dataset.iterator import Iterator as EpochIterator
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import ENDLESS
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import InvalidArgumentError, UnimplementedError
from stoker.service import ShardingPolicy, from_dataset_id
from stoker.service import messages as m
from stoker.service.api import consumers, source
from stoker.service.api.read_options import ReadOptions
from stoker.service.client.measure.latest_reading import LatestReading
from stoker.service.client.measure.reading import Reading
from tests.serving import Service

ADDRESS = "localhost:5050"
MODE = "deterministic_epoch"


class _Twin(Stream):
    """The elements of a share of an epoch, computed here as workers compute them."""

    hellos: ClassVar[list[m.ClientHello]] = []
    tree = b""

    def __init__(self, hello: m.ClientHello, options: ReadOptions, *_: Any, **__: Any) -> None:
        self.hellos.append(hello)
        registration, draws = hello.registration, hello.draws
        tree = decode_tree(self.tree if registration is None else registration.tree)
        assert draws is not None
        nodes = number(tree)
        shifted = {node: k + draws.first_number for node, k in nodes.items()}
        self._stream = open_stream(
            tree,
            Context(
                seed=draws.seed,
                seed_given=draws.seed_given,
                salts=salts_by_number(shifted, draws.salts),
                epoch=hello.epoch,
                numbers=shifted,
                make_dataset=Dataset,
            ),
        )
        share = options.share()
        self._share, self._at, self._next = share, 0, 0
        total = tree.cardinality()
        self._size = share.length(ENDLESS if total < 0 else total)
        self.latest = LatestReading(self._reading)

    def next_chunk(self, max_elements: int, max_bytes: int, lazy: bool = False) -> list[Any]:
        if self._at >= self._size:
            return []
        wanted = self._share.position(self._at)
        self._at += 1
        self._stream.advance(wanted - self._next)
        self._next = wanted + 1
        return self._stream.next_chunk(1, 1)

    def advance(self, n: int) -> int:
        skipped = min(n, self._size - self._at)
        self._at += skipped
        return skipped

    def close(self) -> None:
        self._stream.close()

    def _reading(self) -> Reading:
        return Reading(seconds=0.0, waited=0.0)


@pytest.fixture(autouse=True)
def twin(monkeypatch: pytest.MonkeyPatch) -> list[m.ClientHello]:
    monkeypatch.setattr(source, "ServiceStream", _Twin)
    monkeypatch.setattr(_Twin, "hellos", [])
    return _Twin.hellos


def noisy(x: Any) -> tuple[Any, float]:
    return x, stoker.random.generator().random()


def failing(x: int) -> int:
    if x % 5 == 3:
        raise ValueError(x)
    return x


def plain(element: Any) -> Any:
    return element.tolist() if hasattr(element, "tolist") else element


def read(iterator: EpochIterator, most: int = 10**9) -> list[Any]:
    found: list[Any] = []
    while len(found) < most:
        try:
            found.append(plain(next(iterator)))
        except StopIteration:
            break
        except (ValueError, stoker.errors.UserFunctionError) as error:
            found.append(f"error {error}"[:9])
    return found


def over(dataset: Dataset, **options: Any) -> Dataset:
    return dataset.distribute(ADDRESS, MODE, **options)


Split = tuple[Callable[[], Dataset], Callable[[Dataset], Dataset]]
"""The pipeline before `distribute`, and the one after."""

PIPELINES: dict[str, Split] = {
    "range": (lambda: Dataset.range(23), lambda x: x),
    "shuffle": (lambda: Dataset.range(23).shuffle(7).map(noisy), lambda x: x),
    "after": (lambda: Dataset.range(23).shuffle(23), lambda x: x.map(noisy)),
    "shuffled twice": (lambda: Dataset.range(23).shuffle(5), lambda x: x.shuffle(6).map(noisy)),
    "batch": (lambda: Dataset.range(23).map(lambda x: x + 1), lambda x: x.batch(4)),
    "batches": (lambda: Dataset.range(23).batch(3), lambda x: x.map(np.sum).batch(2)),
    "errors": (lambda: Dataset.range(23).map(failing), lambda x: x),
    "repeat": (lambda: Dataset.range(7).shuffle(7), lambda x: x.repeat(3)),
    "endless": (lambda: Dataset.range(7).shuffle(7).repeat(), lambda x: x.take(30)),
    "second": (
        lambda: Dataset.range(23).shuffle(9),
        lambda x: Dataset.zip(Dataset.range(23).shuffle(4), x),
    ),
    "empty": (lambda: Dataset.range(0), lambda x: x),
}
STRIDED = ["range", "shuffle", "after", "batch", "errors"]
"""Pipelines whose nodes after `distribute` follow positions."""


@pytest.mark.parametrize("name", PIPELINES)
def test_epochs_and_states_are_those_without_a_service(name: str) -> None:
    before, after = PIPELINES[name]
    local, remote = after(before()), after(over(before()))
    seed = local._seed.get()
    remote._seed.adopt(seed)
    for epoch in (0, 1, 4):
        whole = read(local.iterator(epoch=epoch))
        assert read(remote.iterator(epoch=epoch)) == whole
        mine, theirs = local.iterator(epoch=epoch), remote.iterator(epoch=epoch)
        for at in range(len(whole) + 1):
            state = json.loads(json.dumps(theirs.state_dict()))
            assert state == mine.state_dict() | {"consumers": 1, "base": 0}
            assert len(json.dumps(state)) < 400
            again = after(before()).iterator(state=state)
            assert read(again) == whole[at:]
            again = after(over(before())).iterator(state=mine.state_dict())
            assert read(again, 3) == whole[at : at + 3]
            read(mine, 1)
            read(theirs, 1)


def consumers_of(name: str, count: int, seed: int, **options: Any) -> Iterator[Dataset]:
    before, after = PIPELINES[name]
    for index in range(count):
        dataset = after(over(before(), num_consumers=count, consumer_index=index, **options))
        dataset._seed.adopt(seed)
        yield dataset


@pytest.mark.parametrize("name", ["range", "shuffle", "after", "errors"])
@pytest.mark.parametrize("count", [1, 2, 5, 30])
def test_consumers_divide_the_local_epoch(name: str, count: int) -> None:
    before, after = PIPELINES[name]
    local = after(before())
    whole = read(local.iterator(epoch=2))
    for index, dataset in enumerate(consumers_of(name, count, local._seed.get())):
        assert read(dataset.iterator(epoch=2)) == whole[index::count]
        assert len(dataset) == dataset.cardinality() == len(whole[index::count])
    for dataset in consumers_of(name, count, 0, drop_short_step=True):
        assert len(dataset) == len(whole) // count


@pytest.mark.parametrize("name", STRIDED)
@pytest.mark.parametrize(("first", "second"), [(1, 2), (2, 1), (2, 3), (3, 2), (4, 4), (5, 2)])
@pytest.mark.parametrize("steps", [0, 1, 2, 99])
def test_another_number_of_consumers_goes_on(
    name: str, first: int, second: int, steps: int
) -> None:
    seed = 5
    found: list[Any] = []
    state: dict[str, Any] = {}
    for dataset in consumers_of(name, first, seed):
        iterator = dataset.iterator(epoch=1)
        found += read(iterator, steps)
        state = state or iterator.state_dict()
    later: dict[str, Any] = {}
    for dataset in consumers_of(name, second, 0):
        iterator = dataset.iterator(state=state)
        found += read(iterator, 1)
        later = later or iterator.state_dict()
    before, after = PIPELINES[name]
    found += read(after(before()).iterator(state=later))  # and then without a service
    local = after(before())
    local._seed.adopt(seed)
    whole = read(local.iterator(epoch=1))
    if name == "batch":  # of another number of consumers, batches have other elements
        found, whole = list(itertools.chain(*found)), list(itertools.chain(*whole))
    assert sorted(map(str, found)) == sorted(map(str, whole))


def test_a_state_says_where_the_consumers_are() -> None:
    dataset, *_ = consumers_of("batch", 2, 5)
    iterator = dataset.iterator(epoch=1)
    read(iterator, 2)
    state = iterator.state_dict()
    assert (state["position"], state["consumers"], state["base"]) == (2, 2, 0)
    dataset, *_ = consumers_of("batch", 3, 5)
    iterator = dataset.iterator(state=state)
    assert read(iterator, 1) == [[17, 20, 23]]
    state = iterator.state_dict()
    assert (state["position"], state["consumers"], state["base"]) == (1, 3, 4)


def test_draws_after_the_service_are_not_repeated_by_other_consumers() -> None:
    draws = []
    for dataset in consumers_of("after", 2, 5):
        draws += [x for _, x in read(dataset.iterator(epoch=0))]
    assert len(set(draws)) == len(draws) == 23


@pytest.mark.parametrize("name", ["shuffled twice", "repeat", "endless", "second"])
def test_nodes_without_positions_bind_a_state_to_its_number_of_consumers(name: str) -> None:
    dataset, *_ = consumers_of(name, 2, 5)
    iterator = dataset.iterator(epoch=0)
    whole = read(dataset.iterator(epoch=0))
    read(iterator, 2)
    state = iterator.state_dict()
    assert (state["consumers"], state["base"]) == (2, None)
    again, *_ = consumers_of(name, 2, 0)
    assert read(again.iterator(state=state)) == whole[2:]
    before, after = PIPELINES[name]
    for other in (next(consumers_of(name, 3, 0)), after(before()), before()):
        with pytest.raises((UnimplementedError, InvalidArgumentError)):
            other.iterator(state=state)
    single = after(over(before())).iterator(epoch=0).state_dict()
    with pytest.raises(UnimplementedError, match=r"through `(shuffle|repeat|take|zip)` \(.*py:"):
        again.iterator(state=single)


def test_the_same_structure_with_the_service_at_another_place_is_refused() -> None:
    shuffled = over(Dataset.range(20).shuffle(5), num_consumers=2, consumer_index=0)
    later = over(Dataset.range(20), num_consumers=2, consumer_index=0).shuffle(5)
    with pytest.raises(UnimplementedError, match="`shuffle`"):
        later.iterator(state=shuffled.iterator().state_dict())
    with pytest.raises(UnimplementedError, match="a node above `distribute`"):
        shuffled.iterator(state=later.iterator().state_dict())


BAD: list[tuple[dict[str, Any], str]] = [
    ({"consumers": 0}, "0 consumers"),
    ({"consumers": -2}, "-2 consumers"),
    ({"consumers": "2"}, "state_dict"),
    ({"consumers": 1, "base": None}, "no reader has"),
    ({"base": -1}, "negative"),
    ({"position": -1}, "negative"),
    ({"consumers": 2, "position": 13}, "position 13 of 2 consumers"),
    ({"consumers": 2, "base": 25}, "from 25 on"),
    ({"position": 24}, "position 24"),
    ({"version": 1}, "version 1"),
    ({"length": 3}, "length"),
]


@pytest.mark.parametrize(("change", "message"), BAD)
@pytest.mark.parametrize("consumers", [None, 1, 3])
def test_impossible_states_are_refused(
    change: dict[str, Any], message: str, consumers: int | None
) -> None:
    dataset = Dataset.range(23)
    if consumers is not None:
        dataset = over(dataset, num_consumers=consumers, consumer_index=0)
    state = Dataset.range(23).iterator().state_dict() | change
    with pytest.raises(InvalidArgumentError, match=message):
        dataset.iterator(state=state)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (lambda: Dataset.range(24), r"`range` \(.*test_deterministic"),
        (lambda: Dataset.range(23).map(abs), "after the last node"),
        (lambda: Dataset.range(23).with_options(Options(seed=9)), None),
    ],
)
def test_states_of_another_dataset_are_refused(
    other: Callable[[], Dataset], message: str | None
) -> None:
    state = other().iterator().state_dict()
    dataset = over(Dataset.range(23).with_options(Options(seed=8)))
    with pytest.raises(InvalidArgumentError, match=message or "seed 9"):
        dataset.iterator(state=state)


# ── draws ─────────────────────────────────────────────────────────────────────────────────────────
def test_the_hello_has_the_draws_of_the_dataset(twin: list[m.ClientHello]) -> None:
    dataset = over(Dataset.range(9).shuffle(3))
    list(dataset)
    list(dataset)
    seed = dataset._seed.get()
    assert [hello.draws for hello in twin] == [m.Draws(seed)] * 2
    assert [hello.epoch for hello in twin] == [(0,), (1,)]


def test_copies_of_a_dataset_have_its_draws(twin: list[m.ClientHello]) -> None:
    dataset = over(Dataset.range(9).shuffle(9))
    copy = pickle.loads(pickle.dumps(dataset))
    assert list(dataset) == list(copy)
    assert twin[0].draws == twin[1].draws


@pytest.mark.parametrize("tied", [{"job_name": "j"}, {"num_consumers": 2, "consumer_index": 1}])
def test_processes_that_read_together_have_seed_0(
    tied: dict[str, Any], twin: list[m.ClientHello]
) -> None:
    dataset = over(Dataset.range(9).shuffle(9), **tied).map(noisy)
    iterator = iter(dataset)
    assert twin[0].draws == m.Draws(0)
    assert iterator.state_dict()["seed"] == 0


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_given_seed_is_that_of_the_whole_pipeline(when: str, twin: list[m.ClientHello]) -> None:
    options = Options(seed=6)
    local = Dataset.range(9).shuffle(9).map(noisy).with_options(options)
    if when == "before":
        dataset = over(Dataset.range(9).shuffle(9).with_options(options), job_name="j").map(noisy)
    else:
        dataset = over(Dataset.range(9).shuffle(9), job_name="j").map(noisy).with_options(options)
    assert read(iter(dataset)) == read(iter(local))
    assert twin[0].draws == m.Draws(6, seed_given=True)


def test_a_dataset_within_another_has_the_numbers_of_its_nodes(twin: list[m.ClientHello]) -> None:
    read(iter(Dataset.zip(Dataset.range(5).map(abs), over(Dataset.range(5).shuffle(3)))))
    assert [hello.draws.first_number for hello in twin if hello.draws] == [2]


def test_salts_are_adopted_from_a_state_and_sent(twin: list[m.ClientHello]) -> None:
    dataset = over(Dataset.range(9).shuffle(9)).shuffle(4)
    dataset._adopt_seeds(3, [4, 5])
    state = iter(dataset).state_dict()
    assert (state["seed"], state["salts"]) == (3, [4, 5])
    again = over(Dataset.range(9).shuffle(9)).shuffle(4)
    read(again.iterator(state=state))
    assert [hello.draws for hello in twin] == [m.Draws(3, salts=[4])] * 2
    assert pickle.loads(pickle.dumps(again))._salts() == [4, 5]


def test_readers_of_an_id_have_states_of_the_registered_dataset(
    twin: list[m.ClientHello], monkeypatch: pytest.MonkeyPatch
) -> None:
    def build() -> Dataset:
        return Dataset.range(23).shuffle(7).with_options(Options(seed=6))

    with Service(1) as service:
        dataset_id = stoker.service.register_dataset(service.target, build())
        reader = from_dataset_id(MODE, service.target, dataset_id)
        part = from_dataset_id(MODE, service.target, dataset_id, num_consumers=5, consumer_index=4)
        assert (len(reader), len(part)) == (23, 4)
        monkeypatch.setattr(_Twin, "tree", encode_tree(build().node))
        local = build().map(noisy)
        remote = reader.map(noisy)
        iterator = remote.iterator(epoch=3)
        found = read(iterator, 5)
        state = iterator.state_dict()
        assert found + read(local.iterator(state=state)) == read(local.iterator(epoch=3))
        uncounted = stoker.service.register_dataset(service.target, build().filter(bool))
        with pytest.raises(UnimplementedError, match=r"`filter` \(.*test_determ"):
            from_dataset_id(MODE, service.target, uncounted, element_spec=stoker.UnknownSpec())


# ── arguments ─────────────────────────────────────────────────────────────────────────────────────
def test_endless_data_stay_endless() -> None:
    dataset = over(Dataset.range(3).repeat(), num_consumers=2, consumer_index=1)
    assert dataset.cardinality() == stoker.INFINITE_CARDINALITY
    assert read(iter(dataset), 4) == [1, 0, 2, 1]


def test_consumers_need_no_job_name_and_agree_on_nothing() -> None:
    dataset = over(Dataset.range(3), num_consumers=2, consumer_index=1)
    hello = dataset.node.hello.value  # type: ignore[attr-defined]
    assert hello.parameters == m.JobParameters(ShardingPolicy.DETERMINISTIC)
    assert (hello.consumer_index, hello.named) == (1, False)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_consumers": 2, "consumer_index": 2}, r"\[0, num_consumers\), got 2 of 2"),
        ({"num_consumers": 2, "consumer_index": -1}, "got -1 of 2"),
        ({"num_consumers": 0, "consumer_index": 0}, "got 0 of 0"),
        ({"num_consumers": 2}, "Must either set both"),
        ({"drop_short_step": 1}, "`drop_short_step` must be a bool, got 1"),
        (
            {"cross_trainer_cache": stoker.service.CrossTrainerCache("t"), "job_name": "j"},
            "`cross_trainer_cache` is not for",
        ),
    ],
)
def test_arguments_out_of_range_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidArgumentError, match=message):
        over(Dataset.range(3), **arguments)


def test_only_this_mode_drops_a_short_step() -> None:
    with pytest.raises(InvalidArgumentError, match='needs processing_mode="deterministic_epoch"'):
        Dataset.range(3).distribute(ADDRESS, "distributed_epoch", drop_short_step=True)


def test_a_dataset_without_positions_is_refused_where_it_is_distributed() -> None:
    with pytest.raises(UnimplementedError, match=r"`filter` \(.*test_determ.*py:\d+\) has no"):
        over(Dataset.range(3).filter(bool).map(abs))


def test_a_function_with_a_state_is_refused() -> None:
    counter = itertools.count()
    with pytest.raises(InvalidArgumentError, match="has a state: `counter`"):
        over(Dataset.range(3).map(lambda x: (x, next(counter))))


def test_a_cache_warns_once(recwarn: pytest.WarningsRecorder) -> None:
    dataset = Dataset.range(3).cache()
    with pytest.warns(UserWarning, match="`cache` .* keeps nothing"):
        over(dataset)
    over(dataset)
    assert not recwarn.list


def test_other_modes_have_no_state() -> None:
    dataset = Dataset.range(3).distribute(ADDRESS, "distributed_epoch")
    with pytest.raises(UnimplementedError, match="`distribute`"):
        dataset.iterator(state=Dataset.range(3).iterator().state_dict())


# ── ranks of a loader ─────────────────────────────────────────────────────────────────────────────
def test_consumers_of_a_loader_end_at_one_step_and_keep_adopted_salts(
    twin: list[m.ClientHello],
) -> None:
    whole = over(Dataset.range(23).shuffle(9)).with_options(Options(seed=4))
    whole._adopt_seeds(4, [7])
    parts = [consumers.as_consumer(whole, index, 5, {}) for index in range(5)]
    found = [read(iter(part)) for part in parts]
    assert [len(part) for part in parts] == [4] * 5
    assert list(itertools.chain(*zip(*found, strict=True))) == read(iter(whole))[:20]
    assert {hello.consumer_index for hello in twin} == {0, 1, 2, 3, 4, None}
    assert all(hello.draws == m.Draws(4, seed_given=True, salts=[7]) for hello in twin)
