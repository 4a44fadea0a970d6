"""Parts of TensorFlow's tf.data.Dataset that `stoker.Dataset` lacks."""

import inspect
import os
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.compat import tf
from tests.serving import Service, read

TF_METHODS = {
    "as_numpy_iterator": "",
    "from_tensors": "tensors, name",
    "from_tensor_slices": "tensors, name",
    "from_generator": "generator, output_types, output_shapes, args, output_signature, name",
    "zip": "datasets, name",
    "concatenate": "dataset, name",
    "counter": "start, step, dtype, name",
    "rebatch": "batch_size, drop_remainder, name",
    "prefetch": "buffer_size, name",
    "list_files": "file_pattern, shuffle, seed, name",
    "repeat": "count, name",
    "enumerate": "start, name",
    "shuffle": "buffer_size, seed, reshuffle_each_iteration, name",
    "cache": "filename, name",
    "take": "count, name",
    "skip": "count, name",
    "shard": "num_shards, index, name",
    "save": "path, compression, shard_func, checkpoint_args",
    "load": "path, element_spec, compression, reader_func, wait",
    "batch": "batch_size, drop_remainder, num_parallel_calls, deterministic, name",
    "padded_batch": "batch_size, padded_shapes, padding_values, drop_remainder, name",
    "ragged_batch": "batch_size, drop_remainder, row_splits_dtype, name",
    "map": "map_func, num_parallel_calls, deterministic, synchronous, use_unbounded_threadpool, "
    "name",
    "flat_map": "map_func, name",
    "ignore_errors": "log_warning, name",
    "interleave": "map_func, cycle_length, block_length, num_parallel_calls, deterministic, name",
    "filter": "predicate, name",
    "apply": "transformation_func",
    "window": "size, shift, stride, drop_remainder, name",
    "reduce": "initial_state, reduce_func, name",
    "get_single_element": "name",
    "unbatch": "name",
    "with_options": "options, name",
    "group_by_window": "key_func, reduce_func, window_size, window_size_func, name",
    "bucket_by_sequence_length": "element_length_func, bucket_boundaries, bucket_batch_sizes, "
    "padded_shapes, padding_values, pad_to_bucket_boundary, no_padding, drop_remainder, name",
    "random": "seed, rerandomize_each_iteration, name",
    "snapshot": "path, compression, reader_func, shard_func, name",
    "scan": "initial_state, scan_func, name",
    "take_while": "predicate, name",
    "unique": "name",
    "rejection_resample": "class_func, target_dist, initial_dist, seed, name",
    "sample_from_datasets": "datasets, weights, seed, stop_on_empty_dataset, "
    "rerandomize_each_iteration",
    "choose_from_datasets": "datasets, choice_dataset, stop_on_empty_dataset",
}
"""tf.data.Dataset's methods and their arguments in TensorFlow 2.21."""

ABSENT = {"fingerprint", "sparse_batch"}
"""TensorFlow methods missing here: a graph hash, and sparse batches (use `ragged_batch`)."""


@pytest.mark.parametrize("method", sorted(TF_METHODS))
def test_methods_accept_tensorflows_keyword_arguments(method):
    signature = inspect.signature(getattr(tf.data.Dataset, method))
    names = [name for name in TF_METHODS[method].split(", ") if name]
    if "self" in signature.parameters:
        names.insert(0, "self")
    signature.bind(**dict.fromkeys(names))


@pytest.mark.parametrize("method", sorted(TF_METHODS))
def test_methods_accept_tensorflows_positional_arguments(method):
    """The ignored arguments are excluded: they come last, after half a dozen others."""
    parameters = inspect.signature(getattr(tf.data.Dataset, method)).parameters
    ignored = {"name", "deterministic", "synchronous", "use_unbounded_threadpool"}
    expected = [name for name in TF_METHODS[method].split(", ") if name and name not in ignored]
    given = [name for name in parameters if name not in ignored and name != "self"]
    assert given[: len(expected)] == expected or method == "zip"


Untyped: Any = tf.data.Dataset
"""The class without types: checkers see the arguments of `stoker.Dataset` only."""


@pytest.mark.parametrize("method", sorted(ABSENT))
def test_absent_method_is_an_attribute_error(method):
    assert not hasattr(tf.data.Dataset, method)


def elements(dataset):
    return list(dataset.as_numpy_iterator())


def test_text_is_bytes():
    dataset = tf.data.Dataset.from_tensor_slices({"a": ["x", "é"], "b": np.array(["y", "z"])})
    assert elements(dataset) == [{"a": b"x", "b": b"y"}, {"a": "é".encode(), "b": b"z"}]
    assert list(tf.data.Dataset.from_tensors("x")) == [b"x"]
    assert elements(dataset.batch(2))[0]["b"].tolist() == [b"y", b"z"]


def test_returned_text_is_bytes_in_numpy_form():
    dataset = tf.data.Dataset.range(2).map(str)
    assert elements(dataset) == [b"0", b"1"]
    assert elements(dataset.batch(2))[0].tolist() == [b"0", b"1"]


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        ([1, 2], "int32"),
        ([2**31], "int64"),
        ([0.5], "float32"),
        ([1, 0.5], "float32"),
        ([True], "bool"),
        (range(3), "int32"),
        (range(2**31, 2**31 + 2), "int64"),
        ({"a": 1}.values(), "int32"),
        ([np.float64(1)], "float64"),
        (np.array([1]), "int64"),
        ([], "float32"),
    ],
)
def test_lists_get_tensorflows_dtypes(value, dtype):
    assert tf.data.Dataset.from_tensor_slices(value).element_spec == tf.TensorSpec((), dtype)
    assert next(iter(tf.data.Dataset.from_tensors(value))).dtype == dtype


@pytest.mark.parametrize(("value", "dtype"), [(1, "int32"), (0.5, "float32"), (2**40, "int64")])
def test_numbers_get_tensorflows_dtypes(value, dtype):
    assert elements(tf.data.Dataset.from_tensors((value, 0)))[0][0].dtype == dtype


def test_ragged_list_is_refused():
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="is a list that cannot become an array"
    ):
        tf.data.Dataset.from_tensor_slices([[1], [2, 3]])


def test_numpy_values_print_like_tensorflows():
    values = elements(tf.data.Dataset.range(3))
    assert repr(values) == "[0, 1, 2]"
    assert [value.item() for value in values] == [0, 1, 2]
    assert {value.dtype for value in values} == {np.dtype("int64")}
    assert np.asarray(values).dtype == np.int64
    halves = elements(tf.data.Dataset.from_tensor_slices([0.5, 1.5]))
    assert repr(halves) == "[0.5, 1.5]"
    assert isinstance(halves[0], np.float32)


def test_numpy_values_keep_their_structure_and_arrays():
    dataset = tf.data.Dataset.range(1).map(
        lambda x: {"pair": (x, True), "array": np.ones(2), "zero": np.array(7, np.int8), "no": None}
    )
    (value,) = elements(dataset)
    assert value["pair"] == (0, True)
    assert value["array"].tolist() == [1, 1]
    assert (value["zero"].dtype, value["zero"].shape) == (np.int8, ())
    assert isinstance(value["zero"], np.number)
    assert value["no"] is None


def test_numpy_iterator_can_be_closed():
    with tf.data.Dataset.range(3).as_numpy_iterator() as iterator:
        assert (next(iterator), iterator.next(), iterator.stats()["elements"]) == (0, 1, 2)
    with pytest.raises(tf.errors.FailedPreconditionError):
        next(iterator)


def test_iterating_yields_python_and_numpy_values():
    assert list(tf.data.Dataset.range(3)) == [0, 1, 2]
    assert isinstance(iter(tf.data.Dataset.range(3)), tf.data.Iterator)
    assert {type(element) for element in tf.data.Dataset.range(3)} == {int}


def test_range_has_an_output_type():
    dataset = tf.data.Dataset.range(2, 5, output_type=tf.float32, dtype=tf.int8)
    assert dataset.element_spec == tf.TensorSpec((), tf.float32)
    assert [type(element) for element in dataset] == [np.float32] * 3


def test_listed_files_are_bytes(tmp_path):
    for name in ("b.txt", "a.txt"):
        (tmp_path / name).touch()
    dataset = tf.data.Dataset.list_files(str(tmp_path / "*.txt"), shuffle=False)
    expected = [os.fsencode(tmp_path / name) for name in ("a.txt", "b.txt")]
    assert elements(dataset) == expected
    patterns = [os.fsencode(tmp_path / "a*"), str(tmp_path / "b*")]
    assert sorted(tf.data.Dataset.list_files(patterns)) == expected


def counting():
    yield from ((i, [str(i)] * i) for i in range(3))


def test_generator_accepts_the_deprecated_arguments():
    dataset = tf.data.Dataset.from_generator(
        counting, (tf.int32, tf.string), (tf.TensorShape([]), tf.TensorShape([None]))
    )
    assert dataset.element_spec == (tf.TensorSpec((), tf.int32), tf.TensorSpec([None], tf.string))
    numbers, texts = zip(*dataset, strict=True)
    assert [type(number) for number in numbers] == [np.int32] * 3
    assert [text.tolist() for text in texts] == [[], [b"1"], [b"1"[:0] + b"2"] * 2]


def test_generator_without_shapes_has_dtypes_only():
    dataset = tf.data.Dataset.from_generator(lambda: iter([1, [1, 2]]), tf.float32)
    assert [np.shape(element) for element in dataset] == [(), (2,)]
    assert {element.dtype for element in dataset} == {np.dtype("float32")}


def test_generator_with_a_signature_yields_its_dtypes():
    signature = {"x": tf.TensorSpec([2], tf.int16), "name": tf.TensorSpec([], tf.string)}
    dataset = tf.data.Dataset.from_generator(
        lambda n: iter([{"name": "a", "x": [n, 2]}]), output_signature=signature, args=(1,)
    )
    (element,) = dataset
    assert element["name"] == b"a"
    assert (element["x"].tolist(), element["x"].dtype) == ([1, 2], np.int16)


def test_generator_without_a_signature_is_not_converted():
    assert list(tf.data.Dataset.from_generator(lambda: iter([1, "a"]))) == [1, "a"]


@pytest.mark.parametrize(
    ("value", "signature", "message"),
    [
        ([1, 2, 3], tf.TensorSpec([2], tf.int32), r"shape \(3,\) where .* \(2,\) was expected"),
        ("a", tf.TensorSpec([], tf.int32), "which is not int32"),
        ((1, 2, 3), (tf.TensorSpec([]), tf.TensorSpec([])), "not structured as its signature"),
        (1, (tf.TensorSpec([]), tf.TensorSpec([])), "not structured as its signature"),
        ([1, 2], (tf.TensorSpec([]), tf.TensorSpec([])), "not structured as its signature"),
        (1.5, tf.TensorSpec([], tf.int32), "1.5, which is not int32: it is float64"),
        (300, tf.TensorSpec([], tf.uint8), "300, which is not uint8"),
        (1, tf.TensorSpec([], tf.bool), "1, which is not bool"),
        (1, tf.TensorSpec([], tf.string), "1, which is not text"),
        ([None], tf.TensorSpec([1], tf.string), "which is not text: it contains None"),
        (None, tf.TensorSpec([], tf.float32), "None, which is not float32"),
        ([[1], [2, 3]], tf.TensorSpec([None], tf.int32), "which is not int32"),
        ({"x": 1}, {"y": tf.TensorSpec([])}, "not structured as its signature"),
    ],
)
def test_generator_that_breaks_its_signature_is_an_error(value, signature, message):
    dataset = tf.data.Dataset.from_generator(lambda: iter([value]), output_signature=signature)
    with pytest.raises(tf.errors.InvalidArgumentError, match=message):
        list(dataset)


@pytest.mark.parametrize("misfit", ["ERROR", [7, 8], (1, 2), None])
def test_a_generators_values_follow_one_that_does_not_fit(misfit):
    values = [[4, 5, 6], misfit, [7, 8, 9], misfit, [10, 11, 12]]
    dataset = tf.data.Dataset.from_generator(
        lambda: iter(values), output_signature=tf.TensorSpec([3], tf.int32)
    )
    rows = iter(dataset)
    found = []
    for _ in values:
        try:
            found.append(next(rows).tolist())
        except tf.errors.InvalidArgumentError:
            found.append("error")
    assert found == [[4, 5, 6], "error", [7, 8, 9], "error", [10, 11, 12]]
    assert list(rows) == []
    assert len(list(dataset.ignore_errors())) == 3


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (True, tf.int32, 1),
        (1, tf.float32, 1.0),
        (1.5, tf.complex64, 1.5),
        (np.float64(1.5), tf.int32, 1),
        (np.int64(2), tf.uint8, 2),
        ([], tf.string, []),
        (np.array(["a"]), tf.string, [b"a"]),
    ],
)
def test_generator_values_are_cast_like_tensorflows(value, dtype, expected):
    (element,) = tf.data.Dataset.from_generator(lambda: iter([value]), dtype)
    assert np.asarray(element).tolist() == expected
    assert element.dtype == dtype


def test_generator_signature_and_types_are_exclusive():
    with pytest.raises(tf.errors.InvalidArgumentError, match="can not be used together"):
        tf.data.Dataset.from_generator(counting, tf.int32, output_signature=tf.TensorSpec([]))
    with pytest.raises(tf.errors.InvalidArgumentError, match="`generator`"):
        Untyped.from_generator([1, 2], tf.int32)


def test_arguments_without_meaning_are_ignored():
    dataset = Untyped.range(6, name="a").map(
        lambda x: x + 1, num_parallel_calls=2, deterministic=False, name="b"
    )
    batched = dataset.batch(3, deterministic=True, name="c").prefetch(1, name="d")
    assert [batch.tolist() for batch in batched] == [[1, 2, 3], [4, 5, 6]]


def test_unknown_argument_is_an_error():
    with pytest.raises(TypeError, match="no_such"):
        Untyped.range(3).batch(2, no_such=1)


def test_methods_return_the_same_class():
    dataset = tf.data.Dataset.range(4).map(abs).batch(2).repeat(2).shuffle(2).take(1).prefetch(1)
    assert type(dataset) is tf.data.Dataset
    assert type(dataset.apply(lambda each: each)) is tf.data.Dataset


def test_stoker_dataset_can_be_converted():
    dataset = stoker.Dataset.range(9).shuffle(9).with_options(stoker.Options(threads=1))
    adopted = tf.data.Dataset.of(dataset)
    assert list(adopted) == list(dataset)
    assert adopted.options() == dataset.options()
    assert tf.data.Dataset.of(adopted) is adopted


def test_windows_have_tensorflows_methods():
    windows = Untyped.range(4).window(2, name="w")
    assert [elements(window) for window in windows] == [[0, 1], [2, 3]]
    batched = windows.flat_map(lambda window: window.batch(2, name="b"))
    assert [batch.tolist() for batch in batched] == [[0, 1], [2, 3]]
    pairs = tf.data.Dataset.range(2).map(lambda x: (x, x)).window(2)
    (first, second) = next(iter(pairs))
    assert (elements(first), elements(second)) == ([0, 1], [0, 1])


def test_groups_have_tensorflows_methods():
    dataset = Untyped.range(6).group_by_window(
        key_func=lambda x: x % 2,
        reduce_func=lambda key, window: window.batch(3, name="b"),
        window_size=3,
        name="g",
    )
    assert sorted(batch.tolist() for batch in dataset) == [[0, 2, 4], [1, 3, 5]]


def test_distributed_datasets_have_tensorflows_methods():
    service = tf.data.experimental.service
    with Service(workers=1) as cluster:
        dataset = Untyped.from_tensor_slices(["a", "b"])
        applied = dataset.apply(service.distribute("parallel_epochs", cluster.target))
        dataset_id = service.register_dataset(cluster.target, dataset, dataset_id="letters")
        registered = service.from_dataset_id("parallel_epochs", cluster.target, dataset_id)
        fluent = dataset.distribute(cluster.target, processing_mode="parallel_epochs")
        for distributed in (applied, registered, fluent):
            assert type(distributed) is tf.data.Dataset
            assert read(distributed.batch(2).map(tuple)) == [(b"a", b"b")]


def test_counter_has_a_dtype():
    dataset = tf.data.Dataset.counter(10, -1, dtype=tf.int8)
    assert dataset.element_spec == tf.TensorSpec((), tf.int8)
    assert [type(element) for element in dataset.take(2)] == [np.int8] * 2


@pytest.mark.parametrize("calls", [None, 2, tf.data.AUTOTUNE])
def test_a_list_that_a_map_returns_is_a_tuple(calls):
    dataset = tf.data.Dataset.range(2).map(lambda x: [x, [x, 2]], num_parallel_calls=calls)
    assert list(dataset) == [(0, [0, 2]), (1, [1, 2])]
    assert list(dataset.map(lambda x, pair: x + pair[1])) == [2, 3]
    assert list(stoker.Dataset.range(2).map(lambda x: [x])) == [[0], [1]]
