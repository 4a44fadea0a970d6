"""Deterministic epochs of a service in PyTorch's loaders: order, worker processes and states."""

import contextlib
import json
import multiprocessing
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker import Dataset  # noqa: E402
from stoker.errors import InvalidArgumentError  # noqa: E402
from stoker.torch import DataLoader, IterableDataset  # noqa: E402
from tests.adapters.torch_datasets import square  # noqa: E402

MODE = "deterministic_epoch"


@pytest.fixture(scope="module")
def cluster() -> Iterator[stoker.LocalCluster]:
    with stoker.LocalCluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def _servers_of_multiprocessing() -> None:
    """Start the servers that live as long as this process before the leaks are counted."""
    for method in ("spawn", "forkserver"):
        context: Any = multiprocessing.get_context(method)
        process = context.Process(target=square, args=(1,))
        process.start()
        process.join()


def squares(count: int) -> Dataset:
    return Dataset.range(count).shuffle(7).map(square)


def values(batches: Any, most: int | None = None) -> list[Any]:
    iterator = iter(batches)
    found: list[Any] = []
    while most is None or len(found) < most:
        try:
            found.append(torch.as_tensor(next(iterator)).tolist())
        except StopIteration:
            break
    return found


def stateful(dataset: Dataset, processes: int, **ranks: int) -> Any:
    """Return torchdata's loader of a dataset, which draws its seed if none is given."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")
        loaders = pytest.importorskip("torchdata.stateful_dataloader")
        return loaders.StatefulDataLoader(
            IterableDataset(dataset, **ranks), batch_size=None, num_workers=processes
        )


@pytest.mark.timeout(300)  # each process imports PyTorch
@pytest.mark.parametrize(
    ("method", "persistent", "rank"),
    [
        ("fork", False, None),
        ("fork", True, 1),
        ("spawn", True, None),
        ("spawn", True, 1),
        ("forkserver", True, 1),
    ],
)
def test_worker_processes_keep_the_order_of_the_epoch(
    cluster: stoker.LocalCluster, method: str, persistent: bool, rank: int | None
) -> None:
    dataset = squares(23)
    place = {} if rank is None else {"rank": rank, "world_size": 2}
    served = IterableDataset(dataset.distribute(cluster, MODE), **place)
    batches = torch.utils.data.DataLoader(
        served,
        batch_size=None,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    passes = [values(batches) for _ in range(2)]
    if rank is not None:
        dataset._adopt_seeds(0, ())
    expected = [[int(x) for x in dataset.iterator(epoch=epoch)] for epoch in range(2)]
    if rank is not None:
        expected = [epoch[rank:22:2] for epoch in expected]
    assert passes == expected
    assert len(batches) == len(expected[0])
    alone = torch.utils.data.DataLoader(served, batch_size=None)
    served.set_epoch(0)
    assert values(alone) == expected[0]


@pytest.mark.timeout(100)
@pytest.mark.parametrize("processes", [0, 1, 2])
@pytest.mark.parametrize("steps", [0, 1, 5, 22, 23])
def test_torchdata_resumes_within_an_epoch_of_a_service(
    cluster: stoker.LocalCluster, processes: int, steps: int
) -> None:
    batches = stateful(squares(23).distribute(cluster, MODE), processes)
    iterator = iter(batches)
    begun = [int(next(iterator)) for _ in range(steps)]
    state = batches.state_dict()
    expected = [begun + values(iterator), values(batches)]
    assert sorted(expected[0]) == [x * x for x in range(23)]
    with stoker.LocalCluster(1, threads=True) as other:
        resumed = stateful(squares(23).distribute(other, MODE), processes)
        resumed.load_state_dict(state)
        assert [begun + values(resumed), values(resumed)] == expected


def test_torchdata_goes_on_with_other_ranks_without_worker_processes(
    cluster: stoker.LocalCluster,
) -> None:
    def readers(count: int) -> list[Any]:
        return [
            stateful(squares(23).distribute(cluster, MODE), 0, rank=rank, world_size=count)
            for rank in range(count)
        ]

    found = []
    first = readers(2)
    iterators = [iter(reader) for reader in first]
    for _ in range(4):
        found += [int(next(iterator)) for iterator in iterators]
    states = [reader.state_dict() for reader in first]
    second = readers(3)
    for reader in second:
        reader.load_state_dict(states[1])
    for step in zip(*map(values, second), strict=True):
        found += step
    whole = squares(23)
    whole._adopt_seeds(0, ())
    assert found == [int(x) for x in whole.iterator(epoch=0)]


def test_worker_processes_refuse_the_state_of_other_ranks(
    cluster: stoker.LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = types.SimpleNamespace(id=0, num_workers=2)
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: process)
    dataset = squares(23).distribute(cluster, MODE)
    with contextlib.closing(iter(IterableDataset(dataset, rank=0, world_size=2))) as iterator:
        next(iterator)
        state = iterator.state_dict()
    other = iter(IterableDataset(dataset, rank=0, world_size=3))
    with pytest.raises(InvalidArgumentError, match=r"of 4 processes .* now 6 do: .*num_workers=0"):
        other.load_state_dict(state)
    again = iter(IterableDataset(dataset, rank=0, world_size=2))
    again.load_state_dict(state)
    rest = list(again)
    assert len(rest) == 5


@pytest.mark.parametrize(
    "arguments",
    [
        {"batch_size": 4},
        {"batch_size": 4, "collate_fn": torch.stack},
        {"batch_size": 4, "collate_fn": torch.stack, "drop_last": True},
        {},
    ],
    ids=["stacked", "collated", "dropped", "single"],
)
def test_local_and_served_loaders_have_the_same_states(
    cluster: stoker.LocalCluster, arguments: dict[str, Any]
) -> None:
    def ones(x: int) -> Any:
        return torch.full((2,), x)

    dataset = Dataset.range(22).shuffle(22).map(ones)
    local = DataLoader(dataset, **arguments)
    remote = DataLoader(dataset.distribute(cluster, MODE), **arguments)
    whole = values(local)
    assert len(local) == len(remote) == len(whole)
    for steps in range(len(whole)):
        local.set_epoch(0)
        remote.set_epoch(0)
        iterator = iter(local)
        begun = values(iterator, steps) if steps else []
        state = json.loads(json.dumps(local.state_dict()))
        del iterator
        remote.load_state_dict(state)
        assert begun + values(remote, 1) == whole[: steps + 1]
        local.load_state_dict(json.loads(json.dumps(remote.state_dict())))
        if steps + 1 < len(whole):
            assert values(local) == whole[steps + 1 :]
        else:
            assert local.state_dict()["epoch"] == 1


def test_a_loader_takes_states_within_an_epoch_of_ranks_without_a_job_name(
    cluster: stoker.LocalCluster,
) -> None:
    def loaders(count: int) -> list[Any]:
        return [
            DataLoader(
                squares(40).distribute(cluster, MODE), batch_size=2, rank=rank, world_size=count
            )
            for rank in range(count)
        ]

    first = loaders(2)
    found = [values(loader, 3) for loader in first]
    state = first[0].state_dict()
    assert state == first[1].state_dict()
    [alone] = loaders(1)
    alone.load_state_dict(state)
    read = [x for batches in (*found, values(alone)) for batch in batches for x in batch]
    assert sorted(read) == [x * x for x in range(40)]
