"""Types that an IDE shows: each `reveal_type` is followed by what mypy reveals.

tests/typing/test_element_types.py compares both; `make lint` does not read this file.
"""

from dataclasses import dataclass
from typing import reveal_type

import numpy as np

import stoker
import stoker.jax
import stoker.keras
import stoker.torch
from stoker.service import distribute


@dataclass
class Sample:
    image: np.ndarray
    label: int


def load(i: int) -> Sample:
    return Sample(np.zeros((2, 2)), i)


numbers = stoker.Dataset.range(10)
reveal_type(numbers)  # Dataset[int]
reveal_type(next(iter(numbers)))  # int
reveal_type(stoker.Dataset.from_tensor_slices([1.5, 2.5]))  # Dataset[float64]
reveal_type(stoker.Dataset.from_tensor_slices(["a", "b"]))  # Dataset[str]
reveal_type(stoker.Dataset.from_tensors({"x": 1}))  # Dataset[Any]
reveal_type(stoker.Dataset.text_lines("file"))  # Dataset[Any]
reveal_type(stoker.Dataset.tfrecords("file"))  # Dataset[bytes]

samples = numbers.map(load, num_parallel_calls=stoker.AUTOTUNE)
reveal_type(samples)  # Dataset[Sample]
for sample in samples.shuffle(10).take(5):
    reveal_type(sample.label)  # int
reveal_type(numbers.filter(lambda i: i > 3).map(str))  # Dataset[str]
reveal_type(samples.map(lambda sample: sample.image.mean()))  # Dataset[Any]
reveal_type(numbers.flat_map(lambda i: stoker.Dataset.range(i).map(float)))  # Dataset[float]
reveal_type(numbers.enumerate())  # Dataset[tuple[int, int]]
reveal_type(numbers.batch(4))  # Dataset[Any]
reveal_type(samples.batch(4))  # Dataset[Any]
reveal_type(numbers.window(4))  # Dataset[Any]
reveal_type(stoker.Dataset.zip(numbers, samples))  # Dataset[tuple[int, Sample]]
reveal_type(numbers.concatenate(numbers))  # Dataset[int]

with stoker.LocalCluster(num_workers=2) as cluster:
    reveal_type(samples.distribute(cluster))  # Dataset[Sample]
    reveal_type(samples.apply(distribute("parallel_epochs", cluster)))  # Dataset[Sample]
with samples.iterator() as iterator:
    reveal_type(iterator)  # Iterator[Sample]


def collate(rows: list[Sample]) -> dict[str, float]:
    return {"label": sum(row.label for row in rows)}


reveal_type(stoker.torch.DataLoader(samples, batch_size=4))  # DataLoader[Any]
loader = stoker.torch.DataLoader(samples, batch_size=4, collate_fn=collate)
reveal_type(loader)  # DataLoader[dict[str, float]]
reveal_type(next(iter(loader)))  # dict[str, float]
reveal_type(stoker.jax.DataLoader(numbers.batch(4)))  # DataLoader[Any]
