"""Flattening, mapping and rebuilding of nested elements."""

import dataclasses
from types import SimpleNamespace
from typing import Any, NamedTuple

import pytest

from stoker.elements.structure import (
    Container,
    flatten,
    flatten_like,
    generated_class,
    leaf_names,
    make_dataclass_instance,
    map_structure,
    pack_like,
    same_structure,
)


class Point(NamedTuple):
    x: Any
    y: Any


@dataclasses.dataclass
class Sample:
    image: Any
    label: Any

    def __post_init__(self) -> None:
        if self.label == "refused":
            raise ValueError("refused")


NESTED = {"b": [1, (2, Point(3, None))], "a": Sample("text", {})}


def test_flatten_is_depth_first_in_the_order_of_dicts() -> None:
    assert flatten(NESTED) == [1, 2, 3, None, "text"]


def test_leaf_names_are_accessors() -> None:
    assert leaf_names(NESTED) == ["['b'][0]", "['b'][1][0]", "['b'][1][1].x", "['b'][1][1].y",
                                  "['a'].image"]  # fmt: skip
    assert leaf_names(5) == [""]


def test_pack_like_is_the_inverse_of_flatten() -> None:
    packed = pack_like(NESTED, flatten(NESTED))
    assert packed == NESTED
    assert type(packed["b"][1][1]) is Point
    assert type(packed["a"]) is Sample


def test_pack_like_refuses_too_many_leaves() -> None:
    with pytest.raises(ValueError, match="too many"):
        pack_like((1, 2), [1, 2, 3])


def test_map_structure_combines_leaves_of_the_same_place() -> None:
    a, b = {"x": 1, "y": (2, 3)}, {"y": (20, 30), "x": 10}
    assert map_structure(lambda p, q: p + q, a, b) == {"x": 11, "y": (22, 33)}
    assert flatten_like(a, b) == [10, 20, 30]
    with pytest.raises(ValueError, match="differ"):
        map_structure(lambda p, q: p, a, {"x": 1})


def test_an_attrs_class_is_a_container_of_its_attributes() -> None:
    class Attrs:  # as attrs makes it
        __slots__ = ("_y", "x")
        __attrs_attrs__ = (SimpleNamespace(name="x"), SimpleNamespace(name="_y"))

    value = make_dataclass_instance(Attrs, [1, (2, 3)])
    assert (value.x, value._y) == (1, (2, 3))
    assert (flatten(value), leaf_names(value)) == ([1, 2, 3], [".x", "._y[0]", "._y[1]"])
    assert flatten(map_structure(float, value)) == [1.0, 2.0, 3.0]


def test_rebuild_does_not_call_init_of_a_dataclass() -> None:
    assert map_structure(lambda _: "refused", Sample(1, 2)).label == "refused"


@pytest.mark.parametrize(
    ("a", "b"),
    [((1, 2), [1, 2]), ((1,), (1, 2)), ({"x": 1}, {"y": 1}), (Point(1, 2), (1, 2)), (1, (1,))],
)
def test_same_structure_compares_containers_and_keys(a: Any, b: Any) -> None:
    assert not same_structure(a, b)
    assert same_structure(a, a)


def test_same_structure_compares_class_and_field_names() -> None:
    twin = generated_class(Container.NAMEDTUPLE, "Point", ("x", "y"))
    assert same_structure(Point(1, 2), twin(1, 2))
    assert not same_structure(
        Point(1, 2), generated_class(Container.NAMEDTUPLE, "Point", ("x", "z"))(1, 2)
    )
    sample = (Container.DATACLASS, "Sample", ("image",))
    assert generated_class(*sample) is generated_class(*sample)
