"""Ranks of torch.distributed train with DistributedDataParallel on equal numbers of steps."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("torch")

import stoker

SCRIPT = Path(__file__).with_name("ddp_training.py")
RANKS = 2
COUNT = 1003


def train(tmp_path, service, processes, epochs):
    """Train with two processes; return what each printed."""
    arguments = [str(RANKS), str(tmp_path / "group"), service, str(processes), str(epochs)]
    ranks = [
        subprocess.Popen(
            [sys.executable, SCRIPT, str(rank), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(RANKS)
    ]
    try:
        outputs = [rank.communicate(timeout=250) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.wait()
    assert [rank.returncode for rank in ranks] == [0] * RANKS, [error for _, error in outputs]
    # Gloo writes lines of its own to stdout.
    return [
        json.loads(next(line for line in output.splitlines() if line.startswith('{"steps"')))
        for output, _ in outputs
    ]


def check(results, epochs, most_dropped):
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
    results = train(tmp_path, "local", 0, 3)
    check(results, 3, most_dropped=1)
    assert results[0]["steps"] == [32] * 3
    assert results[0]["read"][0] != results[0]["read"][1]


@pytest.mark.timeout(300)
def test_ranks_read_a_service_in_step_for_five_epochs(tmp_path):
    with stoker.LocalCluster(2) as cluster:
        results = train(tmp_path, cluster.target, 0, 5)
    check(results, 5, most_dropped=2 * (RANKS - 1))


@pytest.mark.timeout(300)
def test_worker_processes_of_the_ranks_are_consumers_too(tmp_path):
    processes = 2
    with stoker.LocalCluster(2) as cluster:
        results = train(tmp_path, cluster.target, processes, 2)
    check(results, 2, most_dropped=2 * (RANKS * processes - 1))
