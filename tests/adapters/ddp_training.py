"""One rank of a training with torch.distributed, for test_torch_ranks.py: prints what it read.

Arguments: rank, world size, file of the process group, address of the service or "local", number of
worker processes of PyTorch's loader (0: stoker's), epochs.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed
import torch.utils.data

import stoker
import stoker.torch


def sample(index: int) -> tuple[Any, int]:
    return torch.full((4,), index / 1000), index


def main(rank: int, world_size: int, group: str, service: str, processes: int, epochs: int) -> None:
    torch.distributed.init_process_group(
        "gloo", init_method=Path(group).as_uri(), rank=rank, world_size=world_size
    )
    dataset = stoker.Dataset.range(1003).shuffle(100).map(sample)
    if service != "local":
        dataset = dataset.distribute(service)
    batches: Any = stoker.torch.DataLoader(dataset, batch_size=16)
    if processes:
        batches = torch.utils.data.DataLoader(
            stoker.torch.IterableDataset(dataset.batch(16)),
            batch_size=None,
            num_workers=processes,
            multiprocessing_context="spawn",
            persistent_workers=True,
        )
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    read: list[list[int]] = []
    steps: list[int] = []
    for _ in range(epochs):
        read.append([])
        steps.append(0)
        for inputs, labels in batches:
            optimizer.zero_grad()
            model(inputs).mean().backward()  # a rank with more steps would wait for the other
            optimizer.step()
            read[-1] += labels.tolist()
            steps[-1] += 1
    torch.distributed.barrier()
    sys.stdout.write(json.dumps({"steps": steps, "read": read}) + "\n")
    sys.stdout.flush()
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main(
        int(sys.argv[1]),
        int(sys.argv[2]),
        sys.argv[3],
        sys.argv[4],
        int(sys.argv[5]),
        int(sys.argv[6]),
    )
