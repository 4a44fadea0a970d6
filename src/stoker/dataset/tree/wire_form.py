"""The wire form of trees: encode any tree, decode a tree whose nodes are known here."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from stoker.dataset import nodes
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.field_codec import decode_fields
from stoker.dataset.tree.node import Node, layout_of, number, registry
from stoker.dataset.tree.structure import (
    WireNode,
    decode_parts,
    decode_wire_nodes,
    plain_fields,
)
from stoker.errors import InvalidArgumentError, NotFoundError


def encode_tree(root: Node) -> bytes:
    """Encode a tree; pickle its functions.

    Raises:
        InvalidArgumentError: if a function cannot be pickled or a field cannot be encoded.
    """
    numbers = number(root)
    return msgspec.msgpack.encode([_wire_node(node, numbers) for node in numbers])


def _wire_node(node: Node, numbers: Mapping[Node, int]) -> WireNode:
    layout = layout_of(type(node))
    pickled = {name: getattr(node, name) for name in layout.pickled}
    return WireNode(
        kind=node.kind,
        inputs=[numbers[child] for child in node.inputs],
        fields=plain_fields(node),
        pickled={name: opaque.blob for name, opaque in pickled.items() if opaque is not None},
        site=node.site,
    )


def decode_tree(data: bytes) -> Node:
    """Decode a tree; functions are unpickled when first used.

    Raises:
        NotFoundError: if the kind of a node is unknown here.
        InvalidArgumentError: if the bytes are not a tree.
    """
    decoded: list[Node] = []
    for wire in decode_wire_nodes(data):
        decoded.append(_node_of(wire, decoded))
    return decoded[-1]


def decode_structure(structure: bytes, sites: Sequence[str] = ()) -> Node:
    """Return a tree without functions, of what `structure_of` encoded.

    Args:
        structure: the parts of the tree.
        sites: of its nodes, if known.

    Raises:
        NotFoundError: if the kind of a node is unknown here.
        InvalidArgumentError: if the bytes are not a structure.
    """
    decoded: list[Node] = []
    for kind, inputs, fields in decode_parts(structure):
        site = sites[len(decoded)] if sites else ""
        decoded.append(_node_of(WireNode(kind, inputs, fields, {}, site), decoded))
    return decoded[-1]


def _node_of(wire: WireNode, decoded: list[Node]) -> Node:
    if wire.kind not in registry:
        nodes.register_all()  # families are imported when first used
    cls = registry.get(wire.kind)
    if cls is None:
        raise NotFoundError(
            f"node kind {wire.kind!r} is not known to this stoker; use a version that has it "
            f"(known: {', '.join(sorted(registry))})"
        )
    layout = layout_of(cls)
    fixed = len(layout.inputs)
    if len(wire.inputs) < fixed or (len(wire.inputs) > fixed and layout.several is None):
        raise InvalidArgumentError(
            f"node {wire.kind!r} reads {fixed} nodes, but {len(wire.inputs)} are given"
        )
    values: dict[str, Any] = {"site": wire.site}
    try:
        for name, value in decode_fields(wire.fields).items():
            # A newer stoker may send fields that are not known here.
            if name in layout.plain:
                values[name] = msgspec.convert(value, layout.plain[name])
        values |= layout.input_fields([decoded[child] for child in wire.inputs])
        for name in layout.pickled:
            blob = wire.pickled.get(name)
            values[name] = None if blob is None else Pickled.from_blob(blob)
        return cls(**values)
    except (msgspec.MsgspecError, TypeError) as error:
        raise InvalidArgumentError(f"a {wire.kind!r} node has the wrong fields: {error}") from error
