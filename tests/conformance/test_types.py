"""BEHAVIOUR.md, Reading: supported element types arrive unchanged."""

import dataclasses
from collections import namedtuple
from types import SimpleNamespace
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import pytest

import stoker
from stoker.service import distribute, from_dataset_id, register_dataset
from tests.serving import Service, read
from tests.wire.elements import DTYPES, exact

Point = namedtuple("Point", "x y")  # noqa: PYI024


class Typed(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass(frozen=True)
class Sample:
    image: Any
    label: Any = 0


class Attributes:  # as attrs makes it
    __attrs_attrs__ = (SimpleNamespace(name="image"), SimpleNamespace(name="label"))

    def __init__(self, image: Any, label: Any) -> None:
        self.image = image
        self.label = label


STRUCTURED = np.dtype([("a", "i1"), ("b", ">f8", (2,)), ("when", "<M8[s]")])

VALUES = {
    "int": 7,
    "int beyond 64 bits": 2**80,
    "negative": -(2**63) - 1,
    "float": 0.5,
    "nan": float("nan"),
    "complex": 1 + 2j,
    "bool": True,
    "None": None,
    "str": "größe 🙂",
    "empty str": "",
    "bytes": b"\x00\xff",
    "tuple": (1, (2, "three")),
    "list": [1, [2, 3]],
    "empty containers": ((), [], {}),
    "dict": {"b": 1, "a": {"x": np.arange(3)}},
    "dict with int keys": {1: "a", 2: "b"},
    "empty array": np.zeros((0, 3), np.float32),
    "0-d array": np.array(5, np.int16),
    "numpy scalar": np.float32(0.25),
    "numpy str": np.str_("x"),
    "bfloat16": np.arange(4).astype(ml_dtypes.bfloat16),
    "bfloat16 scalar": ml_dtypes.bfloat16(1.5),
    "datetime64": np.array(["2024-02-29", "NaT"], "datetime64[ns]"),
    "datetime64 scalar": np.datetime64("2024-02-29T12", "h"),
    "timedelta64": np.array([1, -1], "timedelta64[ms]"),
    "structured": np.array([(1, (2.0, 3.0), "2020-01-01")], STRUCTURED),
    "structured scalar": np.zeros(2, STRUCTURED)[1],
    "Fortran": np.asfortranarray(np.arange(12.0).reshape(3, 4)),
    "transposed": np.arange(24).reshape(2, 3, 4).T,
    "reversed": np.arange(10)[::-1],
    "strided": np.arange(20)[::3],
    "big-endian": np.arange(4, dtype=">i4"),
    "text array": np.array(["a", "ccc"]),
    "bytes array": np.array([b"a", b"ccc"]),
    "object array": np.array(["a", b"b", None], object),
    "ragged": stoker.RaggedArray.from_rows([[1, 2], [], [3]], dtype=np.int64),
    "sparse": stoker.SparseArray.from_dense(np.array([[0, 1], [2, 0]])),
    "ragged in a dict": {"r": stoker.RaggedArray.from_rows([[1.5]], dtype=np.float64), "n": 1},
    "megabyte": np.arange(1 << 17),
}


def _read_through_service(service: Service, transport: str, *elements: Any) -> list[Any]:
    dataset = stoker.Dataset.range(len(elements)).map(lambda i: elements[i])
    return read(
        dataset.apply(
            distribute("parallel_epochs", service.target, data_transfer_protocol=transport)
        )
    )


@pytest.mark.parametrize("name", VALUES)
def test_element_arrives_unchanged(name, serve, transport):
    value = VALUES[name]
    found = _read_through_service(serve(), transport, value, value)
    assert [exact(x) for x in found] == [exact(value)] * 2


def test_one_stream_carries_elements_of_all_types(serve, transport):
    values = list(VALUES.values())
    assert [exact(x) for x in _read_through_service(serve(), transport, *values)] == [
        exact(x) for x in values
    ]


def test_every_dtype_arrives_unchanged(serve, transport):
    # Pickling the arrays for the worker loses the byte order of dates.
    arrays = [np.zeros((2, 3), dtype) for dtype in DTYPES if dtype != ">M8[ms]"]
    assert [exact(x) for x in _read_through_service(serve(), transport, *arrays)] == [
        exact(x) for x in arrays
    ]


def test_one_stream_carries_many_shapes(serve, transport):
    arrays = [np.full((i % 7, i % 3), i, np.int32) for i in range(3000)]
    assert [exact(x) for x in _read_through_service(serve(), transport, *arrays)] == [
        exact(x) for x in arrays
    ]


@pytest.mark.parametrize(
    "value", [Point(1, np.arange(2)), Typed(np.ones(2), 3), Sample(np.ones(2), 3)]
)
def test_declared_classes_are_rebuilt(value, serve, transport):
    spec = type(value)(*(stoker.UnknownSpec() for _ in range(2)))
    dataset = stoker.Dataset.range(2).map(lambda i: value, element_spec=spec)
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    found = read(dataset)
    assert [type(x) for x in found] == [type(value)] * 2
    assert [exact(x) for x in found] == [exact(value)] * 2


def test_attrs_classes_are_batched_and_rebuilt(serve, transport):
    batches = stoker.Dataset.range(2).map(lambda i: Attributes(np.full(2, i), i)).batch(2)
    [found] = read(batches.distribute(serve().target, data_transfer_protocol=transport))
    assert type(found) is Attributes
    assert (found.image.tolist(), found.label.tolist()) == ([[0, 0], [1, 1]], [0, 1])


def test_namedtuples_of_array_sources_are_rebuilt(serve, transport):
    dataset = stoker.Dataset.from_tensor_slices(Point(np.arange(3), np.arange(6).reshape(3, 2)))
    found = read(dataset.distribute(serve().target, data_transfer_protocol=transport))
    assert [type(x) for x in found] == [Point] * 3
    assert [(int(x.x), x.y.tolist()) for x in found] == [(0, [0, 1]), (1, [2, 3]), (2, [4, 5])]


@pytest.mark.parametrize("value", [Point(1, "a"), Sample(1, "a")])
def test_undeclared_classes_are_generated_over_tcp(value, serve):
    [found] = _read_through_service(serve(), "tcp", value)
    fields = getattr(value, "_fields", None) or [f.name for f in dataclasses.fields(value)]
    assert type(found).__name__ == type(value).__name__
    assert [getattr(found, field) for field in fields] == [1, "a"]


def test_dataset_by_id_generates_the_classes(serve):
    target = serve().target
    spec = Sample(stoker.TensorSpec((2,), np.float64), stoker.TensorSpec((), np.int64))
    dataset = stoker.Dataset.range(1).map(lambda i: Sample(np.ones(2), 3), element_spec=spec)
    learned = from_dataset_id(
        "parallel_epochs", target, register_dataset(target, dataset), data_transfer_protocol="tcp"
    )
    [found] = read(learned)
    assert type(found).__name__ == "Sample"
    assert found.label == 3
    assert found.image.tolist() == [1.0, 1.0]


def test_received_arrays_are_private_and_writable(serve, transport):
    source = np.zeros((4, 3))
    dataset = (
        stoker.Dataset.from_tensor_slices(source)
        .cache()
        .distribute(serve().target, data_transfer_protocol=transport)
    )
    for _ in range(2):
        for row in read(dataset):
            assert row.tolist() == [0, 0, 0]
            np.add(row, 1, out=row)
    assert not source.any()


def test_huge_element_arrives(serve, transport):
    def make(i):
        array = np.zeros(200 << 20, np.uint8)
        array[-1] = i + 1
        return array

    dataset = stoker.Dataset.range(2).map(make)
    dataset = dataset.distribute(serve().target, data_transfer_protocol=transport)
    with dataset.iterator() as iterator:
        for i in range(2):
            element = next(iterator)
            assert (element.nbytes, int(element[-1]), int(element[0])) == (200 << 20, i + 1, 0)


@pytest.mark.parametrize("mode", ["parallel_epochs", "distributed_epoch"])
def test_million_tiny_elements_arrive(mode, serve, transport):
    dataset = stoker.Dataset.range(10**6).apply(
        distribute(mode, serve(2).target, data_transfer_protocol=transport)
    )
    times = 2 if mode == "parallel_epochs" else 1
    found = read(dataset)
    assert len(found) == times * 10**6
    assert sum(found) == times * sum(range(10**6))
    assert len(set(found)) == 10**6


def test_batches_of_text_and_bytes_are_object_arrays(serve, transport):
    dataset = stoker.Dataset.range(3).map(lambda i: (f"t{i}", b"b")).batch(3)
    [(text, data)] = read(dataset.distribute(serve().target, data_transfer_protocol=transport))
    assert (text.dtype, text.tolist()) == (np.dtype(object), ["t0", "t1", "t2"])
    assert (data.dtype, data.tolist()) == (np.dtype(object), [b"b"] * 3)
