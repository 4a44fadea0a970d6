"""Ranks of torch.distributed train with DistributedDataParallel on equal numbers of steps."""

import json
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
from stoker import Dataset  # noqa: E402
from stoker.adapters.passes import _counter_of_jobs  # noqa: E402
from stoker.errors import InvalidArgumentError  # noqa: E402
from stoker.torch import DataLoader, IterableDataset  # noqa: E402
from tests.adapters.ddp_training import training_set  # noqa: E402

SCRIPT = Path(__file__).with_name("ddp_training.py")
RANKS = 2
PROCESSES = 2
COUNT = 1003
EPOCHS = 5


def train(folder, service="local", method="", epochs=EPOCHS, **variables):
    """Train with two processes; return what each read."""
    wait_for(
        [
            start(
                [SCRIPT, folder, service, method, epochs], RANK=rank, WORLD_SIZE=RANKS, **variables
            )
            for rank in range(RANKS)
        ]
    )
    return results_in(folder)


def start(command, **variables):
    environment = os.environ | {name: str(value) for name, value in variables.items()}
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_for(processes):
    try:
        outputs = [process.communicate(timeout=250)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()
    assert not any(process.returncode for process in processes), outputs


def results_in(folder):
    # Gloo writes lines of its own to stdout.
    return [json.loads((folder / f"rank{rank}.json").read_text()) for rank in range(RANKS)]


def check(results, most_dropped, epochs=EPOCHS):
    """Check equal steps, and that each element is read at most once in an epoch."""
    assert results[0]["steps"] == results[1]["steps"]
    assert len(results[0]["steps"]) == epochs
    for epoch in range(epochs):
        read = [label for result in results for label in result["read"][epoch]]
        assert len(read) == len(set(read))
        assert set(read) <= set(range(COUNT))
        assert COUNT - most_dropped <= len(read)


@pytest.mark.timeout(300)
def test_local_dataset_is_cut_among_the_ranks(tmp_path):
    results = train(tmp_path)
    check(results, most_dropped=1)
    assert results[0]["steps"] == [32] * EPOCHS
    assert len({tuple(epoch) for result in results for epoch in result["read"]}) == 2 * EPOCHS


@pytest.mark.timeout(300)
def test_ranks_of_torchrun_read_a_service_in_step(tmp_path):
    torchrun = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={RANKS}"]
    with stoker.LocalCluster(2) as cluster:
        wait_for([start([*torchrun, SCRIPT, tmp_path, cluster.target, "", EPOCHS])])
    check(results_in(tmp_path), most_dropped=2 * (RANKS - 1))


@pytest.mark.timeout(300)
def test_spawned_processes_of_the_ranks_are_consumers(tmp_path):
    with stoker.LocalCluster(2) as cluster:
        results = train(tmp_path, cluster.target, "spawn")
    check(results, most_dropped=2 * (RANKS * PROCESSES - 1))


@pytest.mark.timeout(300)
def test_forked_processes_of_the_ranks_are_consumers(tmp_path):
    with stoker.LocalCluster(2) as cluster:
        results = train(tmp_path, cluster.target, "fork")
    check(results, most_dropped=2 * (RANKS * PROCESSES - 1))


@pytest.mark.timeout(300)
def test_forked_processes_of_the_ranks_cut_a_local_dataset(tmp_path):
    check(train(tmp_path, method="fork", epochs=2), most_dropped=1, epochs=2)


@pytest.mark.timeout(300)
def test_ranks_resume_within_an_epoch_from_the_state_of_rank_0(tmp_path):
    state = tmp_path / "state.json"
    before = train(tmp_path, epochs=2, SAVE=state, STEPS=7)
    (tmp_path / "group").unlink(missing_ok=True)
    after = train(tmp_path, epochs=2, LOAD=state)
    for rank in range(RANKS):
        loader = DataLoader(training_set(), batch_size=16, rank=rank, world_size=RANKS)
        expected = [[int(x) for _, labels in loader for x in labels] for _ in range(3)]
        begun, resumed = before[rank]["read"], after[rank]["read"]
        assert [begun[0], begun[1] + resumed[0], resumed[1]] == expected
        assert len(begun[1]) == 7 * 16


@pytest.mark.timeout(300)
def test_one_rank_continues_the_deterministic_epoch_of_two(tmp_path):
    saved = tmp_path / "state.json"
    with stoker.LocalCluster(2) as cluster:
        before = train(
            tmp_path, cluster.target, epochs=2, SAVE=saved, STEPS=7, MODE="deterministic_epoch"
        )
    state = json.loads(saved.read_text())
    with stoker.LocalCluster(1) as cluster:
        served = training_set().distribute(cluster, "deterministic_epoch")
        loader = DataLoader(served, batch_size=16)
        loader.load_state_dict(state)
        rest = [int(x) for _, labels in loader for x in labels]
    whole = training_set()
    whole._adopt_seeds(0, ())
    first, second = ([label for _, label in whole.iterator(epoch=epoch)] for epoch in range(2))
    complete = COUNT - COUNT % RANKS
    for rank in range(RANKS):
        assert before[rank]["steps"] == [32, 7]
        assert before[rank]["read"] == [first[rank:complete:2], second[rank : 2 * 7 * 16 : 2]]
    assert rest == second[2 * 7 * 16 :]


@pytest.fixture
def _rank_1_of_2(monkeypatch):
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")


@pytest.mark.usefixtures("_rank_1_of_2")
def test_rank_of_the_environment_needs_no_process_group(monkeypatch):
    loader = DataLoader(Dataset.range(11), batch_size=2)
    assert len(loader) == 3
    assert [batch.tolist() for batch in loader] == [[1, 3], [5, 7], [9]]
    assert [int(x) for x in IterableDataset(Dataset.range(11))] == [1, 3, 5, 7, 9]
    monkeypatch.setenv("WORLD_SIZE", "1")
    with pytest.raises(InvalidArgumentError, match="RANK and WORLD_SIZE must be ints"):
        len(DataLoader(Dataset.range(11)))


@pytest.fixture
def _no_named_jobs():
    """Counts of named jobs live as long as the process, and have descriptors."""
    yield
    _counter_of_jobs.cache_clear()


@pytest.mark.usefixtures("_no_named_jobs")
@pytest.mark.parametrize("loader", [DataLoader, IterableDataset])
def test_ranks_without_a_group_share_a_named_job(loader):
    found: list[list[list[int]]] = [[], []]

    def read(rank):
        part = loader(dataset, rank=rank, world_size=2)
        found[rank] += [[int(x) for x in part] for _ in range(2)]

    with stoker.LocalCluster(2, threads=True) as cluster:
        dataset = Dataset.range(101).distribute(cluster, job_name="training")
        threads = [threading.Thread(target=read, args=(rank,)) for rank in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for mine, theirs in zip(*found, strict=True):
        assert len(mine) == len(theirs) >= 49
        assert len({*mine, *theirs}) == len(mine) + len(theirs)
