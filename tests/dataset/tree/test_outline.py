"""Trees as text, without unpickling."""

import msgspec
import numpy as np
import pytest

import stoker
from stoker.dataset.tree.outline import outline
from stoker.dataset.tree.structure import WireNode
from stoker.dataset.tree.wire_form import encode_tree
from stoker.errors import InvalidArgumentError


def _lines(dataset: stoker.Dataset) -> list[str]:
    """Return the outline without the user's lines."""
    return [line.partition("  at ")[0] for line in outline(encode_tree(dataset._node))]


def test_nodes_are_in_the_order_of_the_code_with_their_lines():
    dataset = stoker.Dataset.range(10).map(abs).batch(2)
    assert _lines(dataset) == [
        "range(start=0, stop=10, step=1)",
        "map(function)",
        "batch(batch_size=2, drop_remainder=False)",
    ]
    sites = [line.partition("  at ")[2] for line in outline(encode_tree(dataset._node))]
    assert all("test_outline.py:" in site for site in sites)


def test_inputs_of_a_node_with_several_are_indented_and_shown_once():
    base = stoker.Dataset.range(3)
    zipped = stoker.Dataset.zip((base, base.take(1))).take(2)
    assert _lines(zipped) == [
        "  range(start=0, stop=3, step=1)",
        "  range, as above",
        "  take(count=1)",
        "zip()",
        "take(count=2)",
    ]


def test_arrays_are_not_shown():
    [line] = _lines(stoker.Dataset.from_tensor_slices(np.zeros(100_000)))
    assert "0." not in line
    assert len(line) < 100


def test_many_shared_nodes_are_shown_in_linear_time():
    dataset = stoker.Dataset.range(3)
    for _ in range(40):
        dataset = stoker.Dataset.zip((dataset, dataset))
    assert len(_lines(dataset)) == 81


def test_a_long_chain_is_shown():
    nodes = [WireNode("sim", [x - 1] * (x > 0), msgspec.Raw(b"\x80"), {}, "") for x in range(5000)]
    assert outline(msgspec.msgpack.encode(nodes)) == ["sim()"] * 5000


def test_fields_that_cannot_be_decoded_are_left_out():
    node = WireNode("sim", [], msgspec.Raw(b"\x01"), {"function": b"pickled"}, "train.py:1")
    assert outline(msgspec.msgpack.encode([node])) == ["sim(function)  at train.py:1"]


def test_other_bytes_are_refused():
    with pytest.raises(InvalidArgumentError, match="not a dataset"):
        outline(b"\x90")
