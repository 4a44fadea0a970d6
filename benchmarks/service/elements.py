"""What the rows move: the same elements in every system, each written afresh by the worker."""

from collections.abc import Callable
from typing import Any, NamedTuple

import bench_jpeg
import numpy as np

ENDLESS = 10**12
IMAGE = 224 * 224 * 3
BATCH = 64


class Element(NamedTuple):
    """One kind of element.

    Attributes:
        title: for the table, with what is counted.
        shape: of the array, or of the first array of a tuple; () is a number.
        dtype: of the same.
        stoker: the endless dataset of stoker.
        tensorflow: the same of tf.data.
        read: reads every byte of an element; None where nothing is left to read.
        weigh: how many of what is counted an element holds.
        frame: how many the bare socket pair sends at once.
    """

    title: str
    shape: tuple[int, ...]
    dtype: str
    stoker: Callable[[], Any]
    tensorflow: Callable[[], Any]
    read: Callable[[Any], Any] | None
    weigh: int = 1
    frame: int = 1

    @property
    def nbytes(self) -> int:
        """Of one element."""
        return int(np.prod(self.shape, dtype=int)) * np.dtype(self.dtype).itemsize

    def check(self, element: Any) -> None:
        """Refuses an element that is not what the row says."""
        array = np.asarray(element[0] if isinstance(element, (tuple, list)) else element)
        if array.shape != self.shape or array.nbytes != self.nbytes:
            raise ValueError(f"{self.title}: got {array.dtype}{list(array.shape)}")


def fold(array: Any) -> Any:
    """Reads every byte of an array: the exclusive or of its 64-bit words.

    About 35 GB/s where the bytes are cached, and a microsecond a call.
    """
    return np.bitwise_xor.reduce(array.reshape(-1).view(np.uint64))


def fold_pixels(element: Any) -> Any:
    """The same for the images of (images, labels), which are a tensor in PyTorch."""
    return fold(np.asarray(element[0]))


def stoker_range() -> Any:
    """Numbers: no function is called."""
    import stoker

    return stoker.Dataset.range(ENDLESS)


def tensorflow_range() -> Any:
    """The same."""
    import tensorflow as tf

    return tf.data.Dataset.range(ENDLESS)


def stoker_kilobytes() -> Any:
    """128 token ids."""
    return stoker_range().map(lambda number: np.full(128, number))


def tensorflow_kilobytes() -> Any:
    """The same."""
    import tensorflow as tf

    return tensorflow_range().map(lambda number: tf.fill([128], number))


def stoker_images() -> Any:
    """One buffer of bytes each; no parallel calls, which cost more than such a cheap function."""
    return stoker_range().map(lambda number: np.full(IMAGE, number & 255, np.uint8))


def tensorflow_images() -> Any:
    """The same, with the parallel calls that tf.data's guide asks for."""
    import tensorflow as tf

    def image(number: Any) -> Any:
        return tf.fill([IMAGE], tf.cast(number % 256, tf.uint8))

    return tensorflow_range().map(image, num_parallel_calls=tf.data.AUTOTUNE)


def stoker_batches() -> Any:
    """64 of the images in one array."""
    return stoker_images().batch(BATCH)


def tensorflow_batches() -> Any:
    """The same."""
    return tensorflow_images().batch(BATCH)


def photo_bank() -> "np.ndarray[Any, Any]":
    """64 decoded photographs, as rows of bytes: they compress as photographs do."""
    paths = bench_jpeg.photos()[:BATCH]
    return np.stack([bench_jpeg.load(path, 0)[0].reshape(-1) for path in paths])


def stoker_photos() -> Any:
    """Each a copy of one in the bank."""
    import stoker

    def copier() -> Callable[[int], Any]:
        bank = photo_bank()
        return lambda number: bank[number % BATCH].copy()

    return stoker_range().map(stoker.per_worker(copier))


def tensorflow_photos() -> Any:
    """The same."""
    import tensorflow as tf

    bank = tf.constant(photo_bank())

    def photo(number: Any) -> Any:
        return tf.gather(bank, number % BATCH)

    return tensorflow_range().map(photo, num_parallel_calls=tf.data.AUTOTUNE)


def stoker_photo_batches() -> Any:
    """64 of them in one array."""
    return stoker_photos().batch(BATCH)


def tensorflow_photo_batches() -> Any:
    """The same."""
    return tensorflow_photos().batch(BATCH)


def stoker_jpeg() -> Any:
    """Files decoded, cut, scaled, flipped and batched by Pillow's functions, with AUTOTUNE."""
    return bench_jpeg.stoker_batches(bench_jpeg.photos(), ENDLESS)


def tensorflow_jpeg() -> Any:
    """The same work by TensorFlow's functions: antialiased, as Pillow scales."""
    return bench_jpeg.tensorflow_dataset(bench_jpeg.photos(), ENDLESS, antialias=True)


SCALARS = Element("scalars", (), "int64", stoker_range, tensorflow_range, None, frame=8192)
KILOBYTES = Element(
    "1 KB, int64[128]", (128,), "int64", stoker_kilobytes, tensorflow_kilobytes, fold, frame=1024
)
IMAGES = Element("150 KB images", (IMAGE,), "uint8", stoker_images, tensorflow_images, fold)
BATCHES = Element(
    "9.6 MB batches", (BATCH, IMAGE), "uint8", stoker_batches, tensorflow_batches, fold
)
PHOTOS = Element("150 KB photos", (IMAGE,), "uint8", stoker_photos, tensorflow_photos, fold)
PHOTO_BATCHES = Element(
    "9.6 MB batches of photos",
    (BATCH, IMAGE),
    "uint8",
    stoker_photo_batches,
    tensorflow_photo_batches,
    fold,
)
JPEG = Element(
    "JPEG pipeline, images",
    (BATCH, bench_jpeg.SIZE, bench_jpeg.SIZE, 3),
    "uint8",
    stoker_jpeg,
    tensorflow_jpeg,
    fold_pixels,
    weigh=BATCH,
)
