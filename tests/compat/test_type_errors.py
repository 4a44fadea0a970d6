"""Calls that raise TypeError in TensorFlow 2.21 raise one here, which is also a ValueError."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stoker import RaggedArray, SparseArray
from stoker.compat import tf

D: Any = tf.data.Dataset
E: Any = tf.data.experimental

READERS: Any = tf.data
FRACTIONS: Any = [1.5]


def read(dataset: Any) -> Any:
    return list(dataset.take(2).as_numpy_iterator())


def three() -> Any:
    return D.range(3)


def grouped(key: Any, window: Any) -> Any:
    return read(three().group_by_window(lambda _: key, lambda _, d: window or d, 2))


STRUCTURES: dict[str, Callable[[], Any]] = {
    "choices that are no dataset": lambda: D.choose_from_datasets([three()], [0]),
    "choices of text": lambda: D.choose_from_datasets([three()], D.from_tensors("a")),
    "choices of float32": lambda: D.choose_from_datasets([three()], D.from_tensors(0.5)),
    "choice of datasets that differ": lambda: D.choose_from_datasets(
        [three(), D.from_tensors("a")], three()
    ),
    "samples of datasets that differ": lambda: D.sample_from_datasets(
        [three(), D.from_tensors((1, 2))]
    ),
    "weights of text": lambda: D.sample_from_datasets([three(), three()], weights=["a", "b"]),
    "concatenate of other dtypes": lambda: three().concatenate(D.from_tensors("a")),
    "concatenate of other structures": lambda: three().concatenate(D.from_tensors((1, 2))),
    "zip of nothing": D.zip,
    "zip of an int": lambda: D.zip(5),
    "zip of a list": lambda: D.zip([three()]),
    "zip of a tuple with an int": lambda: D.zip((three(), 5)),
    "zip of both forms": lambda: D.zip(three(), datasets=(three(),)),
    "single element of a list": lambda: E.get_single_element([1]),
    "structure of an int": lambda: E.get_structure(5),
    "options of both declarations": lambda: D.from_generator(
        lambda: iter([1]), tf.int32, output_signature=tf.TensorSpec([], tf.int32)
    ),
    "types that are a list": lambda: D.from_generator(list, output_types=[tf.int64]),
    "types with a list": lambda: D.from_generator(list, output_types=(tf.int64, [tf.int64])),
    "shapes without types": lambda: D.from_generator(list, output_shapes=[1]),
    "shapes nested in another way": lambda: D.from_generator(
        list, output_types=(tf.int64, tf.int64), output_shapes=[[], []]
    ),
    "nested shape": lambda: D.from_generator(list, output_types=tf.int64, output_shapes=[[1]]),
    "signature that is a list": lambda: D.from_generator(
        list, output_signature=[tf.TensorSpec([], tf.int64)]
    ),
    "shape of a float": lambda: tf.TensorSpec(FRACTIONS),
    "TensorShape of a float": lambda: tf.TensorShape(FRACTIONS),
    "padded_batch of a SparseArray": lambda: D.from_tensors(
        SparseArray.from_dense([1])
    ).padded_batch(1),
    "padded_batch of a RaggedArray": lambda: read(
        three().map(lambda _: RaggedArray.from_rows([[1]])).padded_batch(1)
    ),
    "padded shape of a float": lambda: read(three().padded_batch(1, padded_shapes=[3.7])),
    "padding value of a float": lambda: read(
        D.from_tensors([1]).padded_batch(1, padding_values=1.5)
    ),
    "NumPy values of datasets": lambda: read(three().window(2)),
    "NumPy values of a dataset among others": lambda: read(D.from_tensors((1, three()))),
    "NumPy values of batches of datasets": lambda: read(three().window(2).batch(2)),
    "signature that is a dtype": lambda: D.from_generator(
        lambda: iter([1]), output_signature=tf.int32
    ),
}
FUNCTIONS: dict[str, Callable[[], Any]] = {
    "map": lambda: three().map(5),
    "filter": lambda: three().filter(5),
    "flat_map": lambda: three().flat_map(5),
    "apply": lambda: three().apply(5),
    "reduce": lambda: three().reduce(0, 5),
    "scan": lambda: three().scan(0, 5),
    "generator": lambda: D.from_generator(5, tf.int32),
    "key_func": lambda: three().group_by_window(5, lambda _, d: d, 2),
    "window_size_func": lambda: three().group_by_window(
        lambda _: 0, lambda _, d: d, window_size_func=5
    ),
    "apply's result": lambda: three().apply(lambda _: 5),
    "flat_map's result": lambda: read(three().flat_map(lambda _: (three(), three()))),
    "interleave's result": lambda: read(three().interleave(lambda _: (three(), three()))),
    "scan's result": lambda: read(three().scan(np.int64(0), lambda state, _: state)),
    "key_func's result": lambda: grouped("a", None),
    "reduce_func's result": lambda: grouped(0, 5),
    "class_func's result": lambda: read(three().rejection_resample(lambda _: "a", [0.5, 0.5])),
}
VALUES: dict[str, Callable[[Any], Any]] = {
    "range": D.range,
    "counter": D.counter,
    "counter's step": lambda value: D.counter(0, value),
    "random's seed": lambda value: D.random(seed=value),
    "batch": lambda value: three().batch(value),
    "drop_remainder": lambda value: three().batch(2, drop_remainder=value),
    "num_parallel_calls": lambda value: three().map(abs, num_parallel_calls=value),
    "num_parallel_reads": lambda value: READERS.TextLineDataset("a", num_parallel_reads=value),
    "ragged_batch": lambda value: three().ragged_batch(value),
    "padded_shapes": lambda value: three().padded_batch(2, padded_shapes=[value]),
    "rebatch": lambda value: three().batch(2).rebatch(value),
    "cycle_length": lambda value: three().interleave(lambda _: three(), cycle_length=value),
    "shuffle": lambda value: three().shuffle(value),
    "shuffle's seed": lambda value: three().shuffle(2, seed=value),
    "repeat": lambda value: three().repeat(value),
    "take": lambda value: three().take(value),
    "skip": lambda value: three().skip(value),
    "shard": lambda value: three().shard(value, 0),
    "prefetch": lambda value: three().prefetch(value),
    "enumerate": lambda value: three().enumerate(value),
    "window": lambda value: three().window(value),
    "record_bytes": lambda value: READERS.FixedLengthRecordDataset("a", value),
    "bucket_boundaries": lambda value: three().bucket_by_sequence_length(len, [value], [2, 2]),
    "bucket_batch_sizes": lambda value: three().bucket_by_sequence_length(len, [2], value),
    "select_cols": lambda value: E.CsvDataset("a", [tf.int32], select_cols=[value]),
    "assert_cardinality": lambda value: three().apply(E.assert_cardinality(value)),
}
TEXTS: dict[str, Callable[[], Any]] = {
    "cache": lambda: three().cache(5),
    "save": lambda: three().save(5),
    "load": lambda: D.load(5),
    "snapshot": lambda: three().snapshot(5),
    "list_files": lambda: D.list_files(5),
    "compression_type": lambda: READERS.TextLineDataset("a", compression_type=5),
    "field_delim": lambda: E.CsvDataset("a", [tf.int32], field_delim=5),
    "dtype of text": lambda: D.counter(dtype=tf.string),
}


def check(call: Callable[[], Any]) -> None:
    with pytest.raises(TypeError) as raised:
        call()
    assert isinstance(raised.value, tf.errors.InvalidArgumentError)


@pytest.mark.parametrize("call", STRUCTURES.values(), ids=STRUCTURES)
def test_datasets_that_do_not_fit_are_a_type_error(call):
    check(call)


@pytest.mark.parametrize("call", FUNCTIONS.values(), ids=FUNCTIONS)
def test_no_function_or_a_wrong_result_is_a_type_error(call):
    check(call)


@pytest.mark.parametrize("value", ["a", 1.5])
@pytest.mark.parametrize("call", VALUES.values(), ids=VALUES)
def test_text_or_a_float_for_an_int_is_a_type_error(call, value):
    check(lambda: call(value))


@pytest.mark.parametrize("call", TEXTS.values(), ids=TEXTS)
def test_a_number_for_text_is_a_type_error(call):
    check(call)


@pytest.mark.parametrize(
    "call",
    [
        lambda: three().batch(0),
        lambda: three().shard(2, 5),
        lambda: D.sample_from_datasets([]),
        lambda: D.choose_from_datasets([], three()),
        lambda: D.from_tensor_slices(([1, 2], [1])),
        lambda: three().shuffle(-5),
    ],
)
def test_value_out_of_range_is_no_type_error(call):
    with pytest.raises(tf.errors.InvalidArgumentError) as raised:
        call()
    assert not isinstance(raised.value, TypeError)
