"""Elements that the rows move: the same in every system, each written anew by the worker."""

from collections.abc import Callable
from typing import Any, NamedTuple

import bench_jpeg
import numpy as np

ENDLESS = 10**12
IMAGE = 224 * 224 * 3
BATCH = 64
SLICES, SLICE_BATCH = 10_000, 128


class Element(NamedTuple):
    """One kind of element.

    Attributes:
        title: the name in the table, with the unit that is counted.
        shape: of the array, or of the first array of a tuple; () for a number.
        dtype: of the same array.
        stoker: builds stoker's endless dataset.
        tensorflow: builds the same with tf.data.
        read: reads every byte of an element; None for a number.
        weigh: counted units per element.
        frame: elements per message of the bare socket pair.
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
        """The bytes of one element."""
        return int(np.prod(self.shape, dtype=int)) * np.dtype(self.dtype).itemsize

    def check(self, element: Any) -> None:
        """Raise ValueError if an element does not have the declared shape and size."""
        array = np.asarray(element[0] if isinstance(element, (tuple, list)) else element)
        if array.shape != self.shape or array.nbytes != self.nbytes:
            raise ValueError(f"{self.title}: got {array.dtype}{list(array.shape)}")


def fold(array: Any) -> Any:
    """Return the exclusive or of an array's 64-bit words, which reads every byte.

    About 35 GB/s where the bytes are cached, plus a microsecond per call.
    """
    return np.bitwise_xor.reduce(array.reshape(-1).view(np.uint64))


def fold_pixels(element: Any) -> Any:
    """Return the same of the images of (images, labels), which are a tensor in PyTorch."""
    return fold(np.asarray(element[0]))


def stoker_range() -> Any:
    """Return numbers; no function is called."""
    import stoker

    return stoker.Dataset.range(ENDLESS)


def tensorflow_range() -> Any:
    """Return the same."""
    import tensorflow as tf

    return tf.data.Dataset.range(ENDLESS)


def stoker_kilobytes() -> Any:
    """Return arrays of 128 token ids."""
    return stoker_range().map(lambda number: np.full(128, number))


def tensorflow_kilobytes() -> Any:
    """Return the same."""
    import tensorflow as tf

    return tensorflow_range().map(lambda number: tf.fill([128], number))


def stoker_images() -> Any:
    """Return byte arrays; without parallel calls, which cost more than such a cheap function."""
    return stoker_range().map(lambda number: np.full(IMAGE, number & 255, np.uint8))


def stoker_cached_images() -> Any:
    """Return one image again and again, from a cache of one element."""
    import stoker

    return stoker.Dataset.from_tensors(np.ones(IMAGE, np.uint8)).cache().repeat()


def tensorflow_cached_images() -> Any:
    """Return the same by TensorFlow."""
    import tensorflow as tf

    return tf.data.Dataset.from_tensors(np.ones(IMAGE, np.uint8)).cache().repeat()


def tensorflow_images() -> Any:
    """Return the same, with the parallel calls that tf.data's guide recommends."""
    import tensorflow as tf

    def image(number: Any) -> Any:
        return tf.fill([IMAGE], tf.cast(number % 256, tf.uint8))

    return tensorflow_range().map(image, num_parallel_calls=tf.data.AUTOTUNE)


def stoker_batches() -> Any:
    """Return batches of 64 images."""
    return stoker_images().batch(BATCH)


def tensorflow_batches() -> Any:
    """Return the same."""
    return tensorflow_images().batch(BATCH)


def photo_bank() -> "np.ndarray[Any, Any]":
    """Return 64 decoded photographs as rows of bytes, which compress as photographs do."""
    paths = bench_jpeg.photos()[:BATCH]
    return np.stack([bench_jpeg.load(path, 0)[0].reshape(-1) for path in paths])


def stoker_photos() -> Any:
    """Return copies of the bank's rows."""
    import stoker

    def copier() -> Callable[[int], Any]:
        bank = photo_bank()
        return lambda number: bank[number % BATCH].copy()

    return stoker_range().map(stoker.per_worker(copier))


def tensorflow_photos() -> Any:
    """Return the same."""
    import tensorflow as tf

    bank = tf.constant(photo_bank())

    def photo(number: Any) -> Any:
        return tf.gather(bank, number % BATCH)

    return tensorflow_range().map(photo, num_parallel_calls=tf.data.AUTOTUNE)


def stoker_photo_batches() -> Any:
    """Return batches of 64 photographs."""
    return stoker_photos().batch(BATCH)


def tensorflow_photo_batches() -> Any:
    """Return the same."""
    return tensorflow_photos().batch(BATCH)


def stoker_jpeg() -> Any:
    """Return files decoded, cropped, scaled, flipped and batched with Pillow and AUTOTUNE."""
    return bench_jpeg.stoker_batches(bench_jpeg.photos(), ENDLESS)


def tensorflow_jpeg() -> Any:
    """Return the same work by TensorFlow's functions, antialiased as Pillow scales."""
    return bench_jpeg.tensorflow_dataset(bench_jpeg.photos(), ENDLESS, antialias=True)


def _small_images() -> Any:
    """Return images of 28 x 28 and their labels: the registration contains 8 MB."""
    generator = np.random.default_rng(0)
    pixels = generator.integers(0, 256, (SLICES, 28, 28), dtype=np.uint8)
    return pixels, np.arange(SLICES)


def stoker_slices() -> Any:
    """Return shuffled batches of arrays in memory."""
    import stoker

    slices = stoker.Dataset.from_tensor_slices(_small_images())
    return slices.shuffle(SLICES).repeat().batch(SLICE_BATCH)


def tensorflow_slices() -> Any:
    """Return the same."""
    import tensorflow as tf

    slices = tf.data.Dataset.from_tensor_slices(_small_images())
    return slices.shuffle(SLICES).repeat().batch(SLICE_BATCH)


SCALARS = Element("scalars", (), "int64", stoker_range, tensorflow_range, None, frame=8192)
KILOBYTES = Element(
    "1 KB, int64[128]", (128,), "int64", stoker_kilobytes, tensorflow_kilobytes, fold, frame=1024
)
KILOBYTE_BATCHES = Element(
    "64 KiB batches",
    (64, 128),
    "int64",
    lambda: stoker_kilobytes().batch(64),
    lambda: tensorflow_kilobytes().batch(64),
    fold,
)
MEGABYTE_BATCHES = Element(
    "1 MiB batches",
    (1024, 128),
    "int64",
    lambda: stoker_kilobytes().batch(1024),
    lambda: tensorflow_kilobytes().batch(1024),
    fold,
)
IMAGES = Element("150 KB images", (IMAGE,), "uint8", stoker_images, tensorflow_images, fold)
CACHED_IMAGES = Element(
    "150 KB images, cached",
    (IMAGE,),
    "uint8",
    stoker_cached_images,
    tensorflow_cached_images,
    fold,
)
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
ARRAYS = Element(
    "arrays, shuffled, batch(128)",
    (SLICE_BATCH, 28, 28),
    "uint8",
    stoker_slices,
    tensorflow_slices,
    fold_pixels,
    weigh=SLICE_BATCH,
)
