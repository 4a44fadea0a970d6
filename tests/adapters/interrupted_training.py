"""Reads without end in worker processes, for test_torch_iterable.py, until it is interrupted."""

import sys

import torch.utils.data

import stoker
import stoker.torch


def main() -> None:
    dataset = stoker.Dataset.counter().map(abs, num_parallel_calls=2).batch(8)
    batches = torch.utils.data.DataLoader(
        stoker.torch.IterableDataset(dataset), batch_size=None, num_workers=2
    )
    for step, _ in enumerate(batches):
        if step == 10:
            sys.stdout.write("reading\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
