"""The registry of nodes and the wire form of trees."""

from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from stoker import Dataset
from stoker.dataset.tree.call_site import call_site
from stoker.dataset.tree.node import Node, number
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, Source, Unsplittable
from stoker.dataset.tree.structure import source_summary, structure_of
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.errors import InvalidArgumentError, NotFoundError


class Join(Node, frozen=True, eq=False, kw_only=True):
    """Two inputs, to have a tree that is more than a line."""

    kind: ClassVar[str] = "test_join"
    left: Node
    right: Node
    name: str = "join"


def pipeline(stop: int = 5) -> Dataset:
    return Dataset.range(stop).map(lambda x: x + 1).shuffle(3, seed=4).batch(2)


def test_a_tree_survives_the_wire() -> None:
    dataset = pipeline()
    decoded = decode_tree(encode_tree(dataset.node))
    assert [node.kind for node in number(decoded)] == ["range", "map", "shuffle", "batch"]
    assert [node.site for node in number(decoded)] == [node.site for node in number(dataset.node)]
    elements = [batch.tolist() for batch in Dataset(decoded)]
    assert elements == [batch.tolist() for batch in dataset.iterator(epoch=0)]


def test_decoding_opens_no_function() -> None:
    nodes = msgspec.msgpack.decode(encode_tree(pipeline().node))
    nodes[1][3]["function"] = b"nothing a pickle would start with"
    decode_tree(msgspec.msgpack.encode(nodes))


def test_shared_nodes_travel_once_and_inputs_come_first() -> None:
    shared = pipeline().node
    tree = Join(left=shared, right=Join(left=shared, right=Dataset.range(1).node))
    numbers = number(tree)
    assert len(numbers) == 7
    assert all(numbers[child] < numbers[node] for node in numbers for child in node.inputs)
    decoded = decode_tree(encode_tree(tree))
    assert isinstance(decoded, Join)
    assert isinstance(decoded.right, Join)
    assert decoded.left is decoded.right.left


def test_deep_trees_are_numbered_without_recursion() -> None:
    dataset = Dataset.range(1)
    for _ in range(3000):
        dataset = dataset.take(1)
    assert len(number(decode_tree(encode_tree(dataset.node)))) == 3001


def test_an_unknown_kind_is_named() -> None:
    data = encode_tree(Join(left=pipeline().node, right=pipeline().node))
    with pytest.raises(NotFoundError, match="test_jjjj"):
        decode_tree(data.replace(b"test_join", b"test_jjjj"))


def test_structure_is_equal_for_a_tree_and_its_encoding() -> None:
    tree = Join(left=pipeline().node, right=pipeline().node)
    data = encode_tree(tree)
    assert structure_of(data) == structure_of(tree)
    assert structure_of(data.replace(b"test_join", b"test_jjjj")) != structure_of(tree)


def test_structure_has_plain_fields_without_functions_or_sites() -> None:
    other = Dataset.range(5).map(lambda x: x - 1).shuffle(3, seed=4).batch(2)
    assert structure_of(other.node) == structure_of(pipeline().node)
    assert structure_of(pipeline(6).node) != structure_of(pipeline(5).node)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        msgspec.msgpack.encode([]),
        msgspec.msgpack.encode([["range", [0], {}, {}, ""]]),
        msgspec.msgpack.encode([["range", [-1], {}, {}, ""]]),
        msgspec.msgpack.encode([["range", [], {"start": "a"}, {}, ""]]),
        msgspec.msgpack.encode([["range", [], 5, {}, ""]]),
        msgspec.msgpack.encode([["range", [], {}, {}, ""]]),
        msgspec.msgpack.encode([["take", [], {"count": 1}, {}, ""]]),
    ],
)
def test_malformed_bytes_are_one_clear_error(data: bytes) -> None:
    with pytest.raises(InvalidArgumentError):
        decode_tree(data)


def test_sources_are_summed_up_for_the_dispatcher() -> None:
    left = Dataset.list_files("*.jpg").map(len)
    right = Join(left=Dataset.range(7).node, right=Dataset.from_generator(list).node)
    summary = source_summary(Join(left=left.node, right=right))
    assert [(source.number, source.kind) for source in summary] == [
        (0, "list_files"),
        (2, "range"),
        (3, "from_generator"),
    ]
    assert summary[0].splits == ListedSplits()
    assert summary[1].splits == IndexSplits(7)
    assert isinstance(summary[2].splits, Unsplittable)
    assert "test_node.py" in summary[0].site
    back = msgspec.msgpack.decode(msgspec.msgpack.encode(summary), type=list[Source])
    assert back == summary


def test_the_call_site_is_the_users_line() -> None:
    site = Dataset.range(3).batch(2).node.site
    here = call_site()
    file, _, line = here.rpartition(":")
    assert site == f"{file}:{int(line) - 1}"
    assert Path(file).name == "test_node.py"


def test_nodes_are_immutable_and_compare_by_identity() -> None:
    node: Any = Dataset.range(3).node
    with pytest.raises(AttributeError):
        node.stop = 4
    assert node != Dataset.range(3).node
