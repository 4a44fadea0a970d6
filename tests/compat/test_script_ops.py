"""tf.numpy_function and tf.py_function."""

from typing import Any

import numpy as np
import pytest

from stoker.compat import tf


def test_numpy_function_passes_numpy_values():
    seen: list[Any] = []

    def see(*values):
        seen.extend(values)
        return np.float32(0.5)

    result = tf.numpy_function(see, [1, "a", b"b", np.arange(2), True], tf.float32)
    assert result == 0.5
    assert [v.tolist() if hasattr(v, "tolist") else v for v in seen] == [
        1,
        b"a",
        b"b",
        [0, 1],
        True,
    ]
    assert [getattr(v, "dtype", None) for v in seen] == ["int64", None, None, "int64", "bool"]


@pytest.mark.parametrize("function", [tf.numpy_function, tf.py_function])
def test_several_results_are_a_list(function):
    assert function(lambda x: (x, "a"), [np.int64(3)], [tf.int64, tf.string]) == [3, b"a"]
    assert function(lambda x: x, [np.int64(3)], [tf.int64]) == [3]
    assert function(lambda: None, [], []) == []
    with pytest.raises(tf.errors.InvalidArgumentError, match="1 values, but expects to see 2"):
        function(lambda: (1,), [], [tf.int64, tf.int64])


def test_in_a_map_several_results_are_a_tuple():
    def halves(x):
        return tf.numpy_function(lambda n: (n // 2, n % 2), [x], [tf.int64, tf.int64])

    dataset = tf.data.Dataset.range(4).map(halves)
    assert list(dataset) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert list(dataset.map(lambda half, rest: 2 * half + rest)) == [0, 1, 2, 3]


def test_numpy_function_checks_the_dtype_and_py_function_converts():
    with pytest.raises(tf.errors.InvalidArgumentError, match="it is int64, but expects float32"):
        tf.numpy_function(lambda: 1, [], tf.float32)
    assert tf.py_function(lambda: 1, [], tf.float32).dtype == np.float32
    assert tf.py_function(lambda: [1, 2], [], tf.TensorSpec([2], tf.int32)).dtype == np.int32
    assert tf.py_function(func=lambda x: [x], inp=["é"], Tout=tf.string).tolist() == ["é".encode()]
    with pytest.raises(tf.errors.InvalidArgumentError, match="'a', which is not int32"):
        tf.py_function(lambda: "a", [], tf.int32)


def test_an_exception_of_the_function_is_raised_unchanged():
    for function in (tf.numpy_function, tf.py_function):
        with pytest.raises(ZeroDivisionError):
            function(lambda: 1 // 0, [], tf.int64)
