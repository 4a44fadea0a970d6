"""Pipelines over arrays in memory, for stoker, tf.data, PyTorch and a bare loop of NumPy.

Images have MNIST's size, 28 x 28, with int64 labels; columns are 26 float32 of a table.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache
from typing import Any

import numpy as np

Weigh = Callable[[Any], int]
Opened = tuple[Iterable[Any], Weigh]
Open = Callable[[], Opened]

COUNT, BATCH, COLUMNS = 60_000, 128, 26


def of_first(batch: Any) -> int:
    """Count the examples of a tuple of arrays."""
    return len(batch[0])


def of_column(batch: Any) -> int:
    """Count the examples of a dict of columns."""
    return len(batch["column0"])


@cache
def images(dtype: str) -> Any:
    """Return images of this dtype and their labels."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (COUNT, 28, 28), dtype=np.uint8)
    return pixels.astype(dtype), np.arange(COUNT)


@cache
def table() -> Any:
    """Return a dict of columns."""
    generator = np.random.default_rng(0)
    return {f"column{i}": generator.random(COUNT, dtype=np.float32) for i in range(COLUMNS)}


def scaled(image: Any, label: Any) -> Any:
    """Scale an image to 0..1, with NumPy's operators or with TensorFlow's."""
    return image / np.float32(255), label


def stoker_slices(value: Callable[[], Any], weigh: Weigh, *, shuffled: bool) -> Opened:
    """Return batches of slices, epoch after epoch."""
    import stoker

    dataset = stoker.Dataset.from_tensor_slices(value())
    if shuffled:
        dataset = dataset.shuffle(COUNT)
    return dataset.batch(BATCH).repeat(), weigh


def tensorflow_slices(value: Callable[[], Any], weigh: Weigh, *, shuffled: bool) -> Opened:
    """Return the same."""
    import tensorflow as tf

    dataset = tf.data.Dataset.from_tensor_slices(value())
    if shuffled:
        dataset = dataset.shuffle(COUNT)
    return dataset.batch(BATCH).repeat().as_numpy_iterator(), weigh


def torch_slices(value: Callable[[], Any], weigh: Weigh, *, shuffled: bool) -> Opened:
    """Return the same with a DataLoader that computes in this process."""
    import torch
    from torch.utils.data import DataLoader, StackDataset

    arrays = value()
    if isinstance(arrays, dict):
        columns = {name: torch.from_numpy(array) for name, array in arrays.items()}
        dataset = StackDataset(**columns)
    else:
        dataset = StackDataset(*map(torch.from_numpy, arrays))
    return _endless(DataLoader(dataset, BATCH, shuffle=shuffled, num_workers=0)), weigh


def bare_slices(value: Callable[[], Any], weigh: Weigh, *, shuffled: bool) -> Opened:
    """Return the same as a plain loop: a copied slice, or ``array[index]``, of each array."""
    arrays = value()
    parts = arrays if isinstance(arrays, tuple) else tuple(arrays.values())

    class Loop:
        def __iter__(self) -> Iterator[Any]:
            order = np.random.default_rng().permutation(COUNT) if shuffled else None
            for start in range(0, COUNT, BATCH):
                stop = start + BATCH
                if order is not None:
                    batch = [part[order[start:stop]] for part in parts]
                else:
                    batch = [part[start:stop].copy() for part in parts]
                yield batch if arrays is parts else dict(zip(arrays, batch, strict=True))

    return _endless(Loop()), weigh


def stoker_map() -> Opened:
    """Return images that a cheap function of NumPy scales one by one, in batches."""
    import stoker

    dataset = stoker.Dataset.from_tensor_slices(images("uint8")).map(scaled)
    return dataset.batch(BATCH).repeat(), of_first


def tensorflow_map() -> Opened:
    """Return the same by TensorFlow's operators."""
    import tensorflow as tf

    def scale(image: Any, label: Any) -> Any:
        return scaled(tf.cast(image, tf.float32), label)

    dataset = tf.data.Dataset.from_tensor_slices(images("uint8")).map(scale)
    return dataset.batch(BATCH).repeat().as_numpy_iterator(), of_first


def stoker_lookup() -> Opened:
    """Return images that a function of the batch looks up by shuffled numbers."""
    import stoker

    pixels, _ = images("uint8")
    numbers = stoker.Dataset.range(COUNT).shuffle(COUNT).batch(BATCH)
    return numbers.map(lambda index: pixels[index]).repeat(), len


def tensorflow_lookup() -> Opened:
    """Return the same by TensorFlow's gather."""
    import tensorflow as tf

    pixels = tf.constant(images("uint8")[0])
    numbers = tf.data.Dataset.range(COUNT).shuffle(COUNT).batch(BATCH)
    found = numbers.map(lambda index: tf.gather(pixels, index)).repeat()
    return found.as_numpy_iterator(), len


def stoker_range() -> Opened:
    """Return batches of numbers."""
    import stoker

    return stoker.Dataset.range(10**12).batch(BATCH), len


def tensorflow_range() -> Opened:
    """Return the same."""
    import tensorflow as tf

    return tf.data.Dataset.range(10**12).batch(BATCH).as_numpy_iterator(), len


def _endless(epoch: Iterable[Any]) -> Iterator[Any]:
    while True:
        yield from epoch


_SLICES: dict[str, Callable[..., Opened]] = {
    "stoker": stoker_slices,
    "tf.data": tensorflow_slices,
    "PyTorch, no workers": torch_slices,
    "bare loop": bare_slices,
}


def _of_slices(value: Callable[[], Any], weigh: Weigh, *, shuffled: bool) -> dict[str, Open]:
    def opener(system: Callable[..., Opened]) -> Open:
        return lambda: system(value, weigh, shuffled=shuffled)

    return {name: opener(system) for name, system in _SLICES.items()}


def _bytes() -> Any:
    return images("uint8")


def _floats() -> Any:
    return images("float32")


ROWS: dict[str, tuple[str, dict[str, Open]]] = {
    "arrays": (
        "uint8 images -> batch(128)",
        _of_slices(_bytes, of_first, shuffled=False),
    ),
    "arrays-shuffled": (
        "uint8 images -> shuffle(60,000) -> batch(128)",
        _of_slices(_bytes, of_first, shuffled=True),
    ),
    "floats": (
        "float32 images -> batch(128)",
        _of_slices(_floats, of_first, shuffled=False),
    ),
    "floats-shuffled": (
        "float32 images -> shuffle(60,000) -> batch(128)",
        _of_slices(_floats, of_first, shuffled=True),
    ),
    "columns": (
        "26 columns -> batch(128)",
        _of_slices(table, of_column, shuffled=False),
    ),
    "columns-shuffled": (
        "26 columns -> shuffle(60,000) -> batch(128)",
        _of_slices(table, of_column, shuffled=True),
    ),
    "arrays-mapped": (
        "uint8 images -> map(image / 255) -> batch(128)",
        {"stoker": stoker_map, "tf.data": tensorflow_map},
    ),
    "lookup": (
        "range -> shuffle -> batch(128) -> map(images[index])",
        {"stoker": stoker_lookup, "tf.data": tensorflow_lookup},
    ),
    "range": (
        "range -> batch(128)",
        {"stoker": stoker_range, "tf.data": tensorflow_range},
    ),
}
"""Rows by name: the title, and the systems."""
