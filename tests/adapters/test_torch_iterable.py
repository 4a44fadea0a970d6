"""`stoker.torch.IterableDataset` in PyTorch's DataLoader and torchdata's StatefulDataLoader."""

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import time
import types
import warnings
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker import Dataset  # noqa: E402
from stoker.compat import tf  # noqa: E402
from stoker.errors import (  # noqa: E402
    FailedPreconditionError,
    InvalidArgumentError,
    InvalidTypeError,
    UnavailableError,
    UnimplementedError,
    UserFunctionError,
)
from stoker.torch import IterableDataset  # noqa: E402
from tests.adapters.torch_datasets import ones, square  # noqa: E402

DYNAMIC = "distributed_epoch"
SQUARES = [x * x for x in range(20)]
EPOCHS = 3


@pytest.fixture(scope="module")
def cluster():
    with stoker.LocalCluster(2) as cluster:
        yield cluster


@pytest.fixture(scope="module", autouse=True)
def _servers_of_multiprocessing():
    """Start the servers that live as long as this process before the leaks are counted."""
    for method in ("spawn", "forkserver"):
        context = multiprocessing.get_context(method)
        process = context.Process(target=square, args=(1,))  # type: ignore[attr-defined]
        process.start()
        process.join()


def loader(dataset, **arguments):
    return torch.utils.data.DataLoader(dataset, **arguments)


def elements(batches):
    return torch.cat(list(batches)).tolist()


@pytest.mark.timeout(300)  # each process imports PyTorch
@pytest.mark.parametrize("persistent", [False, True], ids=["new", "persistent"])
@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("where", ["local", "service"])
def test_worker_processes_read_each_element_once_in_every_epoch(cluster, where, method, persistent):
    dataset = Dataset.range(20).map(square).shuffle(20)
    if where == "service":
        dataset = dataset.distribute(cluster, DYNAMIC)
    batches = loader(
        IterableDataset(dataset),
        batch_size=3,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    # Two processes of each epoch import PyTorch, unless they are forked or persistent.
    passes = EPOCHS if method == "fork" or persistent else 2
    epochs = [elements(batches) for _ in range(passes)]
    assert [sorted(epoch) for epoch in epochs] == [SQUARES] * passes
    if where == "local":
        assert len(set(map(tuple, epochs))) == passes


def test_without_worker_processes_each_pass_is_the_next_epoch(cluster):
    batches = loader(IterableDataset(Dataset.range(9).shuffle(9)), batch_size=9)
    first, second = elements(batches), elements(batches)
    assert sorted(first) == sorted(second) == list(range(9))
    assert first != second
    served = loader(IterableDataset(Dataset.range(9).distribute(cluster, DYNAMIC)), batch_size=2)
    assert [sorted(elements(served)) for _ in range(EPOCHS)] == [list(range(9))] * EPOCHS


def test_two_datasets_of_one_job_each_read_everything(cluster):
    dataset = Dataset.range(9).distribute(cluster, DYNAMIC)
    next(iter(dataset))
    for _ in range(2):
        assert sorted(elements(loader(IterableDataset(dataset), batch_size=2))) == list(range(9))


def test_batches_of_the_dataset_have_the_length_of_the_loader():
    dataset = IterableDataset(Dataset.range(10).batch(3))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = loader(dataset, batch_size=None, num_workers=2)
        assert len(batches) == 4
        assert sorted(b.tolist() for b in batches) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9]]


@pytest.mark.parametrize("persistent", [False, True], ids=["new", "persistent"])
def test_set_epoch_reaches_worker_processes(persistent):
    dataset = IterableDataset(Dataset.range(20).shuffle(20))
    batches = loader(dataset, batch_size=None, num_workers=2, persistent_workers=persistent)
    epochs = [[int(x) for x in batches] for _ in range(EPOCHS)]
    dataset.set_epoch(1)
    assert [[int(x) for x in batches] for _ in range(2)] == epochs[1:]


def test_equal_base_seeds_are_different_epochs(cluster):
    dataset = IterableDataset(Dataset.range(9).distribute(cluster, DYNAMIC))
    batches = loader(dataset, batch_size=2, num_workers=2)
    for _ in range(2):
        torch.manual_seed(0)
        assert sorted(elements(batches)) == list(range(9))


@pytest.mark.timeout(200)  # each process imports PyTorch
@pytest.mark.parametrize("persistent", [False, True], ids=["new", "persistent"])
@pytest.mark.parametrize("method", ["fork", "spawn"])
@pytest.mark.parametrize("where", ["local", "service"])
def test_pass_that_ends_early_loses_nothing_of_the_next(cluster, where, method, persistent):
    dataset = Dataset.range(1000).shuffle(1000)
    batches = loader(
        IterableDataset(dataset.distribute(cluster, DYNAMIC) if where == "service" else dataset),
        batch_size=4,
        num_workers=2,
        multiprocessing_context=method,
        persistent_workers=persistent,
    )
    torch.manual_seed(0)
    for _ in batches:
        break
    torch.manual_seed(0)
    assert sorted(elements(batches)) == list(range(1000))


def values(batches):
    return [batch.tolist() for batch in batches]


def stateful(dataset, **arguments):
    """Return torchdata's loader of a dataset, which draws its seed if none is given."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "'set_vital' is deprecated")
        loaders = pytest.importorskip("torchdata.stateful_dataloader")
        return loaders.StatefulDataLoader(IterableDataset(dataset), **arguments)


PROCESSES = pytest.mark.parametrize(
    "processes",
    [
        {"num_workers": 0},
        {"num_workers": 2},
        {"num_workers": 2, "persistent_workers": True},
    ],
    ids=["none", "new", "persistent"],
)


@PROCESSES
@pytest.mark.parametrize("batch_size", [None, 2])
def test_torchdata_resumes_in_the_middle_of_an_epoch(processes, batch_size):
    def make():
        dataset = Dataset.range(40).shuffle(40)
        if batch_size is None:
            dataset = dataset.batch(2)
        return stateful(dataset, batch_size=batch_size, **processes)

    batches = make()
    iterator = iter(batches)
    for _ in range(5):
        next(iterator)
    state = batches.state_dict()
    expected = [values(iterator), values(batches), values(batches)]
    resumed = make()
    resumed.load_state_dict(state)
    assert [values(resumed) for _ in range(3)] == expected


def two_passes_from(loader, state):
    loader.load_state_dict(state)
    return [values(loader) for _ in range(2)]


def test_torchdata_resumes_the_drawn_seeds_of_a_compat_dataset():
    def make():
        tf.data.Dataset.range(5).shuffle(5)
        dataset = tf.data.Dataset.range(40).shuffle(40)
        return stateful(dataset, batch_size=4, num_workers=2)

    batches = make()
    iterator = iter(batches)
    next(iterator)
    state = batches.state_dict()
    expected = [values(iterator), values(batches)]
    assert two_passes_from(make(), state) == expected


@PROCESSES
def test_torchdata_resumes_at_the_end_of_an_epoch(processes):
    def make():
        return stateful(Dataset.range(40).shuffle(40), batch_size=4, **processes)

    batches = make()
    values(batches)
    state = batches.state_dict()
    expected = [values(batches), values(batches)]
    assert two_passes_from(make(), state) == expected


@PROCESSES
def test_torchdata_reads_a_service_and_resumes_between_epochs(cluster, processes):
    def make():
        return stateful(Dataset.range(12).distribute(cluster, DYNAMIC), batch_size=2, **processes)

    batches = make()
    assert [sorted(elements(batches)) for _ in range(2)] == [list(range(12))] * 2
    resumed = make()
    resumed.load_state_dict(batches.state_dict())
    assert sorted(elements(resumed)) == list(range(12))


def test_state_within_an_epoch_of_a_service_is_refused(cluster, monkeypatch):
    dataset = IterableDataset(Dataset.range(12).distribute(cluster, DYNAMIC))
    iterator = iter(dataset)
    next(iterator)
    with pytest.raises(UnimplementedError, match="Save the state of the loader between epochs"):
        iterator.state_dict()
    # torchdata takes states in worker processes, unasked.
    monkeypatch.setattr(torch.utils.data, "get_worker_info", lambda: "a worker process")
    state = iterator.state_dict()
    iterator.load_state_dict(state)
    with pytest.raises(UnimplementedError, match="Save the state of the loader between epochs"):
        next(iterator)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_worker_process_raises_the_error_of_its_dataset(method):
    dataset = Dataset.range(4).map(ones).batch(4)
    batches = loader(
        IterableDataset(dataset), batch_size=None, num_workers=1, multiprocessing_context=method
    )
    with pytest.raises(InvalidArgumentError, match=r"worker process 0(.|\n)*padded_batch"):
        list(batches)
    gc.collect()  # PyTorch's iterator and its traceback are a cycle


@pytest.mark.timeout(100)
def test_interrupt_ends_the_trainer_and_its_worker_processes():
    process = subprocess.Popen(
        [sys.executable, Path(__file__).with_name("interrupted_training.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "reading\n"
        os.killpg(process.pid, signal.SIGINT)  # like a terminal
        _, errors = process.communicate(timeout=60)
        deadline = time.monotonic() + 20
        while is_group_alive(process.pid):
            assert time.monotonic() < deadline, "worker processes remained"
            time.sleep(0.05)
    finally:
        if is_group_alive(process.pid):
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGINT
    assert errors.rstrip().endswith("KeyboardInterrupt")


def is_group_alive(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


@pytest.mark.parametrize("error", [InvalidArgumentError, UserFunctionError, UnavailableError])
def test_error_of_a_worker_process_keeps_its_class_and_text(error):
    try:
        raise error("use padded_batch")
    except error:
        wrapper = torch._utils.ExceptionWrapper(where="in DataLoader worker process 0")
    with pytest.raises(error, match=r"worker process 0(.|\n)*use padded_batch"):
        wrapper.reraise()


def test_dataset_without_its_wrapper_is_refused_with_advice():
    with pytest.raises(InvalidTypeError, match=r"wrap it in stoker\.torch\.IterableDataset"):
        list(loader(Dataset.range(3), batch_size=2))


@pytest.mark.parametrize("rank", [0, 1])
def test_worker_processes_of_a_rank_share_its_part(rank):
    dataset = IterableDataset(Dataset.range(11), rank=rank, world_size=2)
    assert len(dataset) == 5
    found = elements(loader(dataset, batch_size=1, num_workers=2))
    assert sorted(found) == list(range(rank, 10, 2))


def test_ranks_that_cannot_communicate_need_a_job_name(cluster):
    dataset = IterableDataset(Dataset.range(4).distribute(cluster, DYNAMIC), rank=0, world_size=2)
    with pytest.raises(FailedPreconditionError, match=r"init_process_group.*`job_name`"):
        iter(dataset)


def test_other_datasets_are_refused():
    with pytest.raises(InvalidTypeError, match=r"must be a stoker\.Dataset"):
        IterableDataset([1, 2])  # type: ignore[arg-type]


def test_rank_caches_its_part_once():
    called = []

    def note(i):
        called.append(i)
        return i

    dataset = IterableDataset(Dataset.range(8).map(note).cache(), rank=1, world_size=2)
    for _ in range(3):
        assert [int(x) for x in dataset] == [1, 3, 5, 7]
    assert called == [1, 3, 5, 7]


def test_rank_under_accelerate_is_warned_of(monkeypatch):
    state = types.SimpleNamespace(is_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "accelerate.state", state)
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.warns(UserWarning, match="rank=0, world_size=1"):
        iter(IterableDataset(Dataset.range(3)))
    whole = IterableDataset(Dataset.range(3), rank=0, world_size=1)
    assert [int(x) for x in whole] == [0, 1, 2]
