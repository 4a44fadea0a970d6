"""Arrays of other libraries are found by their module; others stay values of their own."""

import numpy as np
import PIL.Image

import stoker
from stoker.elements.foreign import array_of, is_foreign_array


class Array:
    """Stands for an array of JAX."""

    def __array__(self, dtype=None, copy=None):
        return np.arange(3)


def test_only_arrays_of_known_libraries_are_foreign():
    assert not is_foreign_array(Array)
    assert not is_foreign_array(np.ndarray)
    named = type("ArrayImpl", (Array,), {"__module__": "jaxlib._jax"})
    assert is_foreign_array(named)
    assert not is_foreign_array(type("Device", (), {"__module__": "jaxlib._jax"}))


def test_images_become_arrays_batched_and_sent():
    pixels = np.arange(6, dtype=np.uint8).reshape(2, 3)
    images: stoker.Dataset = stoker.Dataset.range(2).map(lambda _: PIL.Image.fromarray(pixels))
    assert next(iter(images.batch(2))).tolist() == [pixels.tolist()] * 2
    with stoker.LocalCluster(1, threads=True) as cluster:
        sent = list(images.distribute(cluster, data_transfer_protocol="tcp"))
    assert [(x.dtype, x.tolist()) for x in sent] == [(np.uint8, pixels.tolist())] * 2


def test_array_of_another_library_has_its_values():
    assert array_of(Array(), "").tolist() == [0, 1, 2]
