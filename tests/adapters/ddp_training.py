"""One rank of a training with torch.distributed, for test_torch_ranks.py: writes what it read.

The environment has RANK and WORLD_SIZE, as torchrun sets them. Arguments: a folder for the results
and for the file of the process group, address of the service or "local", start method of the worker
processes of PyTorch's loader ("": stoker's loader), epochs. With SAVE, rank 0 saves the state after
STEPS steps of the last epoch, which ends there; with LOAD, all continue at that state. MODE is the
processing_mode.
"""

import gc
import json
import os
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.utils.data

import stoker
import stoker.torch

PROCESSES = 2


def sample(index: int) -> tuple[Any, int]:
    return torch.full((4,), index / 1000), index


def training_set() -> stoker.Dataset:
    return stoker.Dataset.range(1003).shuffle(100).map(sample)


def main(folder: Path, service: str, method: str, epochs: int) -> None:
    rank, world_size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    by_torchrun = "MASTER_ADDR" in os.environ
    torch.distributed.init_process_group(
        "gloo",
        init_method=None if by_torchrun else (folder / "group").as_uri(),
        rank=rank,
        world_size=world_size,
    )
    dataset = training_set()
    if service != "local":
        dataset = dataset.distribute(service, os.environ.get("MODE", "distributed_epoch"))
    batches: Any = stoker.torch.DataLoader(dataset, batch_size=16)
    if method:
        batches = torch.utils.data.DataLoader(
            stoker.torch.IterableDataset(dataset.batch(16)),
            batch_size=None,
            num_workers=PROCESSES,
            multiprocessing_context=method,
            persistent_workers=method == "spawn",  # each imports PyTorch
        )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    read: list[list[int]] = []
    steps: list[int] = []
    if "LOAD" in os.environ:
        batches.load_state_dict(json.loads(Path(os.environ["LOAD"]).read_text()))
    for epoch in range(epochs):
        most = int(os.environ["STEPS"]) if "SAVE" in os.environ and epoch + 1 == epochs else None
        read.append([])
        steps.append(0)
        for inputs, labels in batches:
            optimizer.zero_grad()
            model(inputs).mean().backward()  # a rank with more steps would wait for the other
            optimizer.step()
            read[-1] += labels.tolist()
            steps[-1] += 1
            if steps[-1] == most:
                break
    if "SAVE" in os.environ and rank == 0:
        Path(os.environ["SAVE"]).write_text(json.dumps(batches.state_dict()))
    # A process group that is freed while Python ends may abort the process.
    del model, optimizer
    gc.collect()
    torch.distributed.barrier()
    (folder / f"rank{rank}.json").write_text(json.dumps({"steps": steps, "read": read}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
