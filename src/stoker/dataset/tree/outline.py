"""A tree as lines of text, made from its wire form: no function of a user is unpickled."""

from typing import Any

import msgspec

from stoker.dataset.tree.structure import WireNode, decode_wire_nodes

LONGEST_FIELDS = 1 << 12
"""Most bytes of the fields of a node that are decoded; arrays have more."""

LONGEST_VALUE = 60
"""Most characters of the value of a field."""


def outline(tree: bytes) -> list[str]:
    """Return one line for each node of a tree in wire form, each after its inputs.

    The inputs of a node that has several are indented.

    Raises:
        InvalidArgumentError: if the bytes are not a tree.
    """
    nodes = decode_wire_nodes(tree)
    lines: list[str] = []
    _add_lines(nodes, len(nodes) - 1, 0, lines, set())
    return lines


def _add_lines(
    nodes: list[WireNode], position: int, depth: int, lines: list[str], shown: set[int]
) -> None:
    indent = "  " * depth
    chain = [position]
    while len(nodes[chain[-1]].inputs) == 1 and chain[-1] not in shown:
        chain.append(nodes[chain[-1]].inputs[0])
    if chain[-1] in shown:
        node = nodes[chain.pop()]
        lines.append(f"{indent}{node.kind}, as above{_at(node)}")
    else:
        for child in nodes[chain[-1]].inputs:
            _add_lines(nodes, child, depth + 1, lines, shown)
    for each in reversed(chain):
        shown.add(each)
        lines.append(f"{indent}{_call(nodes[each])}{_at(nodes[each])}")


def _call(node: WireNode) -> str:
    shown = [f"{name}={value!r}" for name, value in _fields(node).items() if _is_short(value)]
    return f"{node.kind}({', '.join([*node.pickled, *shown])})"


def _fields(node: WireNode) -> dict[str, Any]:
    """Return the fields of a node, unless they are long or their kind is unknown here."""
    if len(bytes(node.fields)) > LONGEST_FIELDS:
        return {}
    try:
        return msgspec.msgpack.decode(node.fields, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError):
        return {}


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float | str) and len(repr(value)) <= LONGEST_VALUE


def _at(node: WireNode) -> str:
    return f"  at {node.site}" if node.site else ""
