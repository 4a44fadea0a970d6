"""Users' own IterableDataset around a stoker Dataset, in PyTorch's DataLoader."""

import gc

import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker.errors import FailedPreconditionError  # noqa: E402
from tests.adapters.torch_datasets import Wrapped  # noqa: E402

NUMBERS = list(range(100))


@pytest.fixture(scope="module")
def cluster():
    with stoker.LocalCluster(1) as cluster:
        yield cluster


@pytest.mark.parametrize("processes", [0, 2])
def test_the_same_processes_read_every_epoch(cluster, processes):
    loader = torch.utils.data.DataLoader(
        Wrapped(stoker.Dataset.range(100).distribute(cluster, processing_mode="distributed_epoch")),
        batch_size=None,
        num_workers=processes,
        persistent_workers=processes > 0,
    )
    assert [sorted(loader) for _ in range(3)] == [NUMBERS] * 3


@pytest.mark.parametrize("mode", ["distributed_epoch", "parallel_epochs"])
def test_new_processes_are_refused_after_the_first_epoch(cluster, mode):
    dataset = Wrapped(stoker.Dataset.range(100).distribute(cluster, mode))
    loader = torch.utils.data.DataLoader(dataset, batch_size=None, num_workers=2)
    assert sorted(loader) == NUMBERS
    with pytest.raises(FailedPreconditionError, match=r"stoker\.torch\.IterableDataset"):
        list(loader)
    gc.collect()  # the error refers to the loader's iterator, which ends its processes
