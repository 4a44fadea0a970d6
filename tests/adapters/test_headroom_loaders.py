"""headroom with real loaders and real steps."""

import jax
import torch
import torch.utils.data

import stoker
import stoker.jax
import stoker.torch

DATASET = stoker.Dataset.range(64).map(float)


def test_pytorch_loader_with_worker_processes_is_measured():
    dataset = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=1)
    shapes = set()
    result = stoker.headroom(
        loader, lambda batch: shapes.add(batch[0].shape), seconds=None, steps=10, rounds=1
    )
    assert result.steps == 10
    assert shapes == {torch.Size([8])}


def test_step_that_changes_tensors_gets_the_first_batch_each_time():
    loader = stoker.torch.DataLoader(DATASET, batch_size=4)
    seen = []

    def step(batch):
        seen.append(batch.tolist())
        batch.add_(100)

    stoker.headroom(loader, step, seconds=None, steps=3, rounds=1, warmup=1)
    assert seen[:5] == [[0.0, 1.0, 2.0, 3.0]] * 5
    assert seen[5:7] == [[0.0, 1.0, 2.0, 3.0], [4.0, 5.0, 6.0, 7.0]]


def test_step_of_jax_may_donate_its_batch():
    loader = stoker.jax.DataLoader(DATASET, batch_size=4)
    step = jax.jit(lambda batch: batch + 1, donate_argnums=0)
    finished = []

    def wait(result):
        finished.append(jax.block_until_ready(result).tolist())

    stoker.headroom(loader, step, seconds=None, steps=3, rounds=1, warmup=1, wait=wait)
    assert finished[:2] == [[1.0, 2.0, 3.0, 4.0]] * 2  # the ideal input
    assert finished[3] == [13.0, 14.0, 15.0, 16.0]  # the fourth batch
