"""Arrays of other libraries are found by their module; others stay values of their own."""

import numpy as np

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


def test_array_of_another_library_has_its_values():
    assert array_of(Array(), "").tolist() == [0, 1, 2]
