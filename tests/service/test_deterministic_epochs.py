"""Deterministic epochs over a real service: elements, draws and states as without one."""

import itertools
import json
from typing import Any

import pytest

import stoker
from stoker import Dataset
from stoker.errors import InvalidArgumentError, UnavailableError
from tests.serving import Service

MODE = "deterministic_epoch"


def noisy(x: int) -> tuple[int, float]:
    return int(x), stoker.random.generator().random()


def build() -> Dataset:
    return Dataset.range(200).shuffle(50).map(noisy)


def like(local: Dataset, remote: Dataset) -> Dataset:
    """Return a local dataset with the drawn seed of another one."""
    local._seed.adopt(remote._seed.get())
    return local


def test_an_epoch_goes_on_in_another_cluster_and_without_one() -> None:
    with Service(2) as first, Service(3) as second:
        remote = build().distribute(first.target, MODE)
        whole = list(like(build(), remote).iterator(epoch=2))
        assert list(remote.iterator(epoch=2)) == whole
        with remote.iterator(epoch=2) as iterator:
            found = list(itertools.islice(iterator, 77))
            state = json.loads(json.dumps(iterator.state_dict()))
        for other in (build().distribute(second.target, MODE), build()):
            assert found + list(other.iterator(state=state)) == whole


def test_another_number_of_consumers_keeps_the_order() -> None:
    def consumers(count: int, state: dict[str, Any]) -> list[Any]:
        return [
            build()
            .distribute(service.target, MODE, num_consumers=count, consumer_index=index)
            .iterator(state=state)
            for index in range(count)
        ]

    with Service(2) as service:
        local = build()
        whole = list(local.iterator(epoch=2))
        state = local.iterator(epoch=2).state_dict()
        four = consumers(4, state)
        found = [next(iterator) for _ in range(11) for iterator in four]
        parts = [list(iterator) for iterator in consumers(3, four[0].state_dict())]
        for iterator in four:
            iterator.close()
        steps = itertools.zip_longest(*parts)
        rest = [element for step in steps for element in step if element is not None]
        assert found + rest == whole


@pytest.mark.parametrize(
    "after",
    [
        lambda x: Dataset.zip(Dataset.range(200).shuffle(9), x),
        lambda x: x.repeat(3),
        lambda x: x.concatenate(build()),
    ],
)
def test_nodes_after_the_service_draw_and_resume_as_without_one(after: Any) -> None:
    with Service(2) as service:
        remote = after(build().distribute(service.target, MODE))
        local = like(after(build()), remote)
        whole = list(local.iterator(epoch=1))
        assert list(remote.iterator(epoch=1)) == whole
        state = local.iterator(epoch=1).state_dict()
        for position in {0, 150, 200, min(203, len(whole)), len(whole)}:
            resumed = remote.iterator(state={**state, "position": position})
            assert list(resumed) == whole[position:]
        with pytest.raises(InvalidArgumentError, match="but the dataset has"):
            remote.iterator(state={**state, "position": len(whole) + 1})


def test_one_process_reads_an_epoch_twice_at_the_same_time() -> None:
    with Service(2) as service:
        remote = build().distribute(service.target, MODE)
        assert all(x == y for x, y in Dataset.zip(remote, remote))
        first, second = remote.iterator(epoch=4), remote.iterator(epoch=4)
        assert list(first) == list(second)


def test_readers_of_an_id_get_the_local_epoch() -> None:
    with Service(2) as service:
        dataset_id = stoker.service.register_dataset(service.target, build())
        remote = stoker.service.from_dataset_id(MODE, service.target, dataset_id)
        assert list(remote) == list(like(build(), remote))


def test_a_seed_given_after_the_service_is_that_of_the_workers() -> None:
    seeded = stoker.Options(seed=6)
    with Service(1) as service:
        remote = build().with_options(stoker.Options(seed=5)).distribute(service.target, MODE)
        assert list(remote.with_options(seeded)) == list(build().with_options(seeded))


def test_a_reader_of_another_process_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with Service(1) as service:
        remote = Dataset.range(10**6).distribute(service.target, MODE, job_name="j")
        first = remote.iterator(epoch=0)
        next(first)
        monkeypatch.setattr("stoker.service.api.source.process_token", lambda: "another")
        with remote.iterator(epoch=0) as second:
            assert next(second) == 0
            with pytest.raises(UnavailableError, match="`num_consumers`"):
                for _ in first:
                    pass
