"""Train an image classifier with PyTorch DDP on photos that workers decode, crop and flip.

Shows: `stoker.torch.DataLoader` in several ranks, random augmentation, `headroom` of the input.
One machine: torchrun --standalone --nproc-per-node 2 examples/images_torch_ddp.py
Several: `stoker dispatcher`, and `stoker worker` on CPU machines (docs/deployment.md), then
torchrun --nnodes 2 ... examples/images_torch_ddp.py --service grpc://HOST:5050 --images DIR
"""

import argparse
import contextlib
import gc
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from PIL import Image
from torch.nn.parallel import DistributedDataParallel

import stoker
import stoker.torch

SIZE = 32
CLASSES = 4
BATCH = 32


def make_images(folder: Path, count: int) -> None:
    """Write `count` JPEG files whose names begin with their class, which is their main color."""
    generator = np.random.default_rng(0)
    for i in range(count):
        label = i % CLASSES
        pixels = generator.integers(0, 120, (48, 64, 3), dtype=np.uint8)
        pixels[..., label % 3] += 60 + 60 * (label // 3)
        Image.fromarray(pixels).save(folder / f"{label}-{i:05}.jpg")


def load(path: str) -> tuple[np.ndarray, int]:
    """Decode a photo, cut a random square and flip it. Runs on the workers."""
    random = stoker.random.generator()  # the same draws whichever worker computes this element
    with Image.open(path) as image:
        pixels = np.asarray(image.convert("RGB"))
    top, left = (random.integers(n - SIZE + 1) for n in pixels.shape[:2])
    square = pixels[top : top + SIZE, left : left + SIZE]
    if random.random() < 0.5:
        square = square[:, ::-1]
    return np.ascontiguousarray(square.transpose(2, 0, 1)), int(Path(path).name[0])


def classifier() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 5, stride=2),
        torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(1),
        torch.nn.Flatten(),
        torch.nn.Linear(8, CLASSES),
    )


def train(loader: stoker.torch.DataLoader, epochs: int) -> float:
    """Train and return the mean accuracy of the last epoch over all ranks."""
    torch.manual_seed(0)
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for epoch in range(epochs):
        hits = torch.zeros(2)
        for images, labels in loader:
            logits = model(images.float() / 255 - 0.5)
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(logits, labels).backward()
            optimizer.step()
            hits += torch.tensor([(logits.argmax(1) == labels).sum(), len(labels)])
        dist.all_reduce(hits)
        accuracy = float(hits[0] / hits[1])
        if dist.get_rank() == 0:
            print(f"epoch {epoch}: {hits[1]:.0f} images, accuracy {accuracy:.2f}", flush=True)
    return accuracy


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", help="address of a dispatcher; default: a LocalCluster")
    parser.add_argument("--images", type=Path, help="folder of CLASS-NAME.jpg, on every machine")
    parser.add_argument("--epochs", type=int, default=3)
    arguments = parser.parse_args()

    dist.init_process_group("gloo")  # "nccl" with GPUs
    with contextlib.ExitStack() as stack:
        where = [arguments.service, arguments.images]
        if dist.get_rank() == 0:
            if arguments.images is None:
                where[1] = Path(stack.enter_context(tempfile.TemporaryDirectory()))
                make_images(where[1], 384)
            if arguments.service is None:
                where[0] = stack.enter_context(stoker.LocalCluster(num_workers=2)).target
        dist.broadcast_object_list(where)  # the other ranks read the same service and files
        service, images = where
        dataset = (
            stoker.Dataset.from_tensor_slices(sorted(str(path) for path in images.glob("*.jpg")))
            .shuffle(10_000, seed=1)
            .map(load, num_parallel_calls=stoker.AUTOTUNE)
            .distribute(service)
        )
        accuracy = train(stoker.torch.DataLoader(dataset, batch_size=BATCH), arguments.epochs)
        # DDP's model is in reference cycles, and keeps the process group: Python aborts at times if
        # the group is freed only while the interpreter ends.
        gc.collect()
        dist.barrier()  # rank 0 owns the cluster
    dist.destroy_process_group()
    assert accuracy > 0.5, accuracy


if __name__ == "__main__":
    main()
