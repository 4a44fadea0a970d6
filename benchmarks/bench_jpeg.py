"""JPEG decoding, random crop, resize to 224, flip, batch(64), on two threads or worker processes.

    python benchmarks/bench_jpeg.py [--rounds 5] [--images 3000]

stoker, a hand-written thread pool, PyTorch's DataLoader and Grain use Pillow's functions. tf.data
uses TensorFlow's: its decoder takes the same time, but its default resizing is bilinear from four
pixels, where Pillow's uses all of them. So tf.data is measured twice: with its default, compared
with stoker and OpenCV, which resizes in the same way; and antialiased, compared with stoker and
Pillow. Every measurement is one epoch in a fresh process. Its first batch is not counted:
DataLoader's and Grain's worker processes have started after it. Images are read from files.
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from tempfile import gettempdir
from typing import Any

import numpy as np
from harness import Figure, Row, in_fresh_process, interleaved, machine, median, slug, warm_rate
from numpy.typing import NDArray
from PIL import Image

SIZE = 224
BATCH = 64
THREADS = 2
FILES = 512

Sample = tuple[NDArray[np.uint8], int]


def photos() -> list[str]:
    """Return the paths of photo-like JPEG files, 500 x 375; make those that are missing.

    If all exist, stoker's module that makes them is not imported: `compare.py` also measures
    checkouts that have it elsewhere.
    """
    folder = Path(gettempdir()) / "stoker-bench-jpeg"
    paths = [folder / f"{number:05}.jpg" for number in range(FILES)]
    if all(path.exists() for path in paths):
        return [str(path) for path in paths]
    from stoker.cli.demo.images import make_images

    return make_images(folder, FILES, lambda _: None)


def square_of(chance: random.Random, width: int, height: int) -> tuple[int, int, int]:
    """Return a random square to crop: left, top and side length."""
    side = chance.randint(SIZE, min(width, height))
    return chance.randint(0, width - side), chance.randint(0, height - side), side


def load(path: str, number: int) -> Sample:
    """Decode one file with Pillow, crop a square, scale it to `SIZE`, and flip every other one."""
    chance = random.Random(number)
    with Image.open(path) as photo:
        left, top, side = square_of(chance, *photo.size)
        square = (left, top, left + side, top + side)
        whole = photo if photo.mode == "RGB" else photo.convert("RGB")
        image = whole.resize((SIZE, SIZE), Image.Resampling.BILINEAR, box=square)
    if chance.random() < 0.5:
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
    return np.asarray(image), number % 1000


def load_opencv(path: str, number: int) -> Sample:
    """Do the same with OpenCV, which scales without antialiasing."""
    import cv2

    cv2.setNumThreads(1)
    chance = random.Random(number)
    photo = cv2.imdecode(np.fromfile(path, np.uint8), cv2.IMREAD_COLOR_RGB)
    height, width = photo.shape[:2]
    left, top, side = square_of(chance, width, height)
    image = cv2.resize(photo[top : top + side, left : left + side], (SIZE, SIZE))
    if chance.random() < 0.5:
        image = cv2.flip(image, 1)
    return image, number % 1000


def stoker_batches(
    paths: list[str], images: int, calls: int = -1, function: Callable[[str, int], Sample] = load
) -> Iterable[Any]:
    """Return a map and a batch as a user writes them; by default with AUTOTUNE."""
    import stoker

    def load_number(number: int) -> Sample:
        return function(paths[number % len(paths)], number)

    return stoker.Dataset.range(images).map(load_number, num_parallel_calls=calls).batch(BATCH)


class Photos:
    """A map-style dataset for PyTorch."""

    def __init__(self, paths: list[str], images: int) -> None:
        self._paths = paths
        self._images = images

    def __len__(self) -> int:
        return self._images

    def __getitem__(self, number: int) -> Sample:
        return load(self._paths[number % len(self._paths)], number)


def torch_batches(paths: list[str], images: int) -> Iterable[Any]:
    """Return a DataLoader with two worker processes; it collates into shared memory."""
    from torch.utils.data import DataLoader

    return DataLoader(Photos(paths, images), batch_size=BATCH, num_workers=THREADS)  # type: ignore[arg-type]


def pool_batches(paths: list[str], images: int) -> Iterator[Any]:
    """Yield batches of two threads that write each image into its row, one batch ahead."""

    def fill(rows: NDArray[np.uint8], labels: NDArray[np.int64], slot: int, number: int) -> None:
        rows[slot], labels[slot] = load(paths[number % len(paths)], number)

    def submit(pool: ThreadPoolExecutor, first: int) -> tuple[Any, Any, list[Future[None]]]:
        size = min(BATCH, images - first)
        rows = np.empty((size, SIZE, SIZE, 3), np.uint8)
        labels = np.empty(size, np.int64)
        calls = [pool.submit(fill, rows, labels, slot, first + slot) for slot in range(size)]
        return rows, labels, calls

    with ThreadPoolExecutor(THREADS) as pool:
        ahead = submit(pool, 0)
        for first in range(BATCH, images + BATCH, BATCH):
            rows, labels, calls = ahead
            if first < images:
                ahead = submit(pool, first)
            for call in calls:
                call.result()
            yield rows, labels


def grain_batches(paths: list[str], images: int) -> Iterable[Any]:
    """Return Grain's dataset with two worker processes, each of which makes whole batches."""
    import grain

    def load_number(number: int) -> Sample:
        return load(paths[number % len(paths)], number)

    dataset = grain.MapDataset.range(images).map(load_number).batch(BATCH)
    reading = grain.ReadOptions(num_threads=1, prefetch_buffer_size=2)
    workers = grain.MultiprocessingOptions(num_workers=THREADS, per_worker_buffer_size=2)
    return dataset.to_iter_dataset(reading).mp_prefetch(workers)


def tensorflow_dataset(paths: list[str], images: int, *, antialias: bool = False) -> Any:
    """Return tf.data with TensorFlow's operations, two parallel calls and two threads."""
    import tensorflow as tf

    files = tf.constant(paths)

    def load_number(number: Any) -> Any:
        photo = tf.io.decode_jpeg(tf.io.read_file(files[number % len(paths)]), 3)
        shape = tf.shape(photo)
        side = tf.random.uniform((), SIZE, tf.minimum(shape[0], shape[1]) + 1, tf.int32)
        photo = tf.image.random_crop(photo, tf.stack([side, side, 3]))
        photo = tf.image.resize(photo, (SIZE, SIZE), antialias=antialias)
        photo = tf.image.random_flip_left_right(photo)
        return tf.cast(photo, tf.uint8), number % 1000

    dataset = tf.data.Dataset.range(images).map(load_number, num_parallel_calls=THREADS)
    options = tf.data.Options()
    options.threading.private_threadpool_size = THREADS
    return dataset.batch(BATCH).with_options(options)


def tensorflow_batches(paths: list[str], images: int, *, antialias: bool = False) -> Iterable[Any]:
    """Return the same as NumPy arrays."""
    return tensorflow_dataset(paths, images, antialias=antialias).as_numpy_iterator()


SYSTEMS: dict[str, Callable[[list[str], int], Iterable[Any]]] = {
    "stoker, AUTOTUNE": stoker_batches,
    "stoker, 2 parallel calls": partial(stoker_batches, calls=THREADS),
    "bare pool of 2 threads": pool_batches,
    "PyTorch DataLoader, 2 workers": torch_batches,
    "Grain, 2 workers": grain_batches,
    "tf.data, antialiased": partial(tensorflow_batches, antialias=True),
    "stoker, AUTOTUNE, OpenCV": partial(stoker_batches, function=load_opencv),
    "tf.data": tensorflow_batches,
}
BASELINES = dict.fromkeys(("stoker, AUTOTUNE, OpenCV", "tf.data"), "stoker, AUTOTUNE, OpenCV")
"""Systems that are not compared with "stoker, AUTOTUNE"."""


def measure_stoker(system: str, seconds: float) -> Figure:
    """Return images per second over `seconds`, after the first batches."""
    batches = SYSTEMS[system](photos(), 10**12)
    return warm_rate(batches, seconds, lambda batch: len(batch[1]), seconds / 5)


def comparison_rows() -> Iterable[Row]:
    """Return stoker's own rows for `compare.py`."""
    for system in ("stoker, AUTOTUNE", "stoker, 2 parallel calls", "stoker, AUTOTUNE, OpenCV"):
        yield Row(
            f"jpeg/{slug(system.removeprefix('stoker, '))}",
            partial(measure_stoker, system),
            seconds=2.0,
            prepare=photos,
            default="OpenCV" not in system,
        )


def measure(system: str, images: int) -> float:
    """Return images per second of one epoch in this process, after its first batch."""
    paths = photos()
    count = 0
    began = time.perf_counter()
    for pixels, labels in SYSTEMS[system](paths, images):
        assert tuple(pixels.shape[1:]) == (SIZE, SIZE, 3), pixels.shape
        if not count:
            began = time.perf_counter()
        count += len(labels)
    assert count == images, f"{count} of {images} images"
    return (images - BATCH) / (time.perf_counter() - began)


def compare(rounds: int, images: int) -> None:
    """Run the rounds and print the table."""
    photos()
    systems = {
        name: lambda name=name: in_fresh_process(__file__, "--measure", name, str(images))  # type: ignore[misc]
        for name in SYSTEMS
    }
    rates = interleaved(systems, rounds)
    print(machine())
    print(f"images/s, {images} images an epoch, {rounds} rounds in one run")
    print(f"{'':32}{'median':>8}{'stoker to it: median, lowest of rounds':>46}")
    for name in SYSTEMS:
        stoker_rates = rates[BASELINES.get(name, "stoker, AUTOTUNE")]
        ratios = [ours / theirs for ours, theirs in zip(stoker_rates, rates[name], strict=True)]
        print(f"{name:32}{median(rates[name]):>8,.0f}{median(ratios):>38.2f}{min(ratios):>8.2f}")


def main() -> None:
    """Print the table, or measure one system in this process."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--images", type=int, default=3_000)
    parser.add_argument("--measure", nargs=2, metavar=("SYSTEM", "IMAGES"))
    options = parser.parse_args()
    if options.measure:
        print(measure(options.measure[0], int(options.measure[1])))
        sys.stdout.flush()
    else:
        compare(options.rounds, options.images)


if __name__ == "__main__":
    main()
