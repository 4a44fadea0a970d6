"""Contents of tf's namespaces, and the error for names not covered."""

import importlib
import operator
import pickle
import re
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.compat import tf

MODULES = [
    "stoker.compat.tf",
    "stoker.compat.tf.data",
    "stoker.compat.tf.data.experimental",
    "stoker.compat.tf.data.experimental.service",
    "stoker.compat.tf.errors",
]


@pytest.mark.parametrize("name", MODULES)
def test_every_listed_name_exists(name):
    module = importlib.import_module(name)
    assert [each for each in module.__all__ if not hasattr(module, each)] == []


@pytest.mark.parametrize(
    ("namespace", "name"),
    [
        (tf, "keras"),
        (tf.data, "make_initializable_iterator"),
        (tf.data.experimental, "make_csv_dataset"),
        (tf.data.experimental.service, "no_such_name"),
        (tf.errors, "no_such_name"),
        (tf.io, "read_file"),
        (tf.random, "uniform"),
    ],
)
def test_uncovered_name_is_an_error_that_lists_coverage(namespace, name):
    with pytest.raises(AttributeError, match=rf"tf.*\.{name}: .* It covers tf\.data"):
        getattr(namespace, name)


def test_constants_equal_tensorflows():
    assert (tf.data.AUTOTUNE, tf.data.experimental.AUTOTUNE) == (-1, -1)
    assert (tf.data.INFINITE_CARDINALITY, tf.data.UNKNOWN_CARDINALITY) == (-1, -2)
    assert tf.data.experimental.INFINITE_CARDINALITY == -1
    assert tf.data.experimental.UNKNOWN_CARDINALITY == -2
    assert tf.data.experimental.SHARD_HINT == -1


@pytest.mark.parametrize(
    "name", ["int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64"]
)
def test_dtypes_are_numpy_dtypes(name):
    assert getattr(tf, name) == np.dtype(name)
    assert tf.as_dtype(name) == getattr(tf, name)


@pytest.mark.parametrize(
    ("path", "replacement"),
    [
        ("image", "Use Pillow"),
        ("cast", "astype(dtype)"),
        ("constant", "numpy.array(value"),
        ("expand_dims", "Use numpy.expand_dims."),
        ("reduce_mean", "numpy.mean for tf.reduce_mean"),
        ("io.read_file", "read_bytes()"),
        ("io.decode_jpeg", "Use Pillow"),
        ("io.parse_single_example", "a parser of your own in `map`"),
        ("random.uniform", "stoker.random.generator()"),
        ("data.experimental.SqlDataset", "from_generator"),
    ],
)
def test_an_absent_name_names_its_replacement(path, replacement):
    with pytest.raises(AttributeError) as caught:
        operator.attrgetter(path)(tf)
    assert f"stoker.compat has no tf.{path}: " in str(caught.value)
    assert replacement in str(caught.value)
    assert "docs/" not in str(caught.value)


@pytest.mark.parametrize(
    ("function", "advice"),
    [
        (lambda x: x.numpy(), "not tensors: remove the call"),
        (lambda x: np.zeros(x).set_shape([3]), "`element_spec` of `map`"),  # type: ignore[attr-defined]
        (lambda x: np.zeros(x).shape.as_list(), r"list\(x.shape\)"),  # type: ignore[attr-defined]
        (lambda x: x.shape, r"numpy.shape\(x\)"),
    ],
)
def test_an_attribute_of_tensors_in_a_function_names_what_to_use(function, advice):
    numbers = tf.data.Dataset.range(3)
    for dataset in (numbers.map(function), numbers.filter(function)):
        with pytest.raises(AttributeError) as caught:
            list(dataset)
        assert re.search(advice, "".join(caught.value.__notes__))


def test_other_attribute_errors_have_no_advice():
    functions: list[Any] = [lambda x: x.colour, lambda _: re.numpy, lambda _: int.shape]  # type: ignore[attr-defined]
    for function in functions:
        with pytest.raises(AttributeError) as caught:
            list(tf.data.Dataset.range(3).map(function))
        assert len(caught.value.__notes__) == 1


def test_string_is_the_object_dtype():
    assert tf.string == np.dtype(object)
    for text in ("string", str, bytes, "U5", np.dtype("S3")):
        assert tf.as_dtype(text) == tf.string


def test_bool_and_bfloat16_are_dtypes():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    assert tf.bool == np.dtype(bool)
    assert tf.bfloat16 == np.dtype(ml_dtypes.bfloat16)


def test_tensor_spec_is_stokers_and_ignores_its_name():
    spec = tf.TensorSpec([None, 3], tf.string, name="image")
    assert spec == stoker.TensorSpec((None, 3), object)
    assert isinstance(spec, tf.TensorSpec)
    assert isinstance(tf.data.Dataset.range(3).element_spec, tf.TensorSpec)
    assert tf.data.Dataset.range(3).element_spec == tf.TensorSpec(shape=(), dtype=tf.int64)
    assert tf.TensorSpec([]).dtype == tf.float32


def test_ragged_spec_has_tensorflows_ragged_rank():
    spec = tf.RaggedTensorSpec([2, None], tf.int32)
    assert (spec.shape, spec.ragged_rank) == ((2, None), 1)
    spec = tf.RaggedTensorSpec([2, 3, None, 4], tf.int32, ragged_rank=2)
    assert (spec.shape, spec.ragged_rank) == ((2, None, None, 4), 2)
    assert tf.RaggedTensorSpec([2, None, None], tf.int32).ragged_rank == 2
    assert tf.RaggedTensorSpec([None, 4], tf.int32, 0) == tf.TensorSpec([None, 4], tf.int32)


def test_sparse_spec_is_stokers():
    assert tf.SparseTensorSpec([None, 5], tf.int64).shape == (None, 5)


def test_tensor_shape_has_rank_and_list():
    shape = tf.TensorShape([None, 3])
    assert (shape, shape.rank, shape.as_list()) == ((None, 3), 2, [None, 3])


@pytest.mark.parametrize("name", sorted(tf.errors.__all__))
def test_every_error_is_an_op_error(name):
    error = getattr(tf.errors, name)
    with pytest.raises(tf.errors.OpError):
        raise error("what happened")


def test_errors_have_a_message():
    error = tf.errors.InvalidArgumentError("no such thing")
    error.add_note("raised in a test")
    assert error.message == "no such thing"
    assert error.op is error.node_def is None
    assert tf.errors.OpError().message == ""
    with pytest.raises(tf.errors.OpError) as caught:
        tf.data.Dataset.range(3).batch(0)
    assert caught.value.message == str(caught.value)
    remote = stoker.errors.UserFunctionError("it failed", remote_traceback="Traceback")
    assert remote.message == "it failed"


def test_errors_are_stokers_own():
    assert tf.errors.NotFoundError is stoker.errors.NotFoundError
    with pytest.raises(tf.errors.InvalidArgumentError):
        tf.data.Dataset.range(3).batch(0)


def test_dataset_may_be_pickled():
    dataset = tf.data.Dataset.from_tensor_slices(["a", "b"]).batch(2)
    copy = pickle.loads(pickle.dumps(dataset))
    assert isinstance(copy, tf.data.Dataset)
    assert copy.as_numpy_iterator().next().tolist() == [b"a", b"b"]
