"""Positions of a tree's elements as positions of the source below, and the way back."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.positions.position_log import Level
from stoker.dataset.tree.node import Node
from stoker.dataset.tree.splits import ENDLESS


def length_of(node: Node) -> int:
    """Return the cardinality of a node; `ENDLESS` without end, or if unknown."""
    count = node.cardinality()
    return ENDLESS if count < 0 else min(count, ENDLESS)


def nodes_by_position(root: Node) -> tuple[list[Node], Node]:
    """Return the nodes from the root on that have `Node.input_positions`, and the node below."""
    above = []
    node = root
    while node.input_positions() is not None:
        above.append(node)
        [node] = node.inputs
    return above, node


class Step(NamedTuple):
    """The positions of a node's inputs, and the number of elements of its input."""

    inputs: InputPositions
    length: int


def steps_below(above: Sequence[Node]) -> list[Step]:
    """Return the steps from the root to the source, without those that change no position.

    Args:
        above: of `nodes_by_position`.
    """
    steps = []
    for node in above:
        inputs = node.input_positions()
        assert inputs is not None
        if inputs != InputPositions():
            steps.append(Step(inputs, length_of(node.inputs[0])))
    return steps


def source_ranges(steps: Sequence[Step], positions: range) -> Iterator[range]:
    """Yield the positions in the source of what some elements of the root are made of, in order."""
    ranges: Iterator[range] = iter((positions,))
    for step in steps:
        ranges = _inputs_of(step, ranges)
    return ranges


def _inputs_of(step: Step, ranges: Iterator[range]) -> Iterator[range]:
    for positions in ranges:
        yield from step.inputs.of(positions, step.length)


def levels_of(above: Sequence[Node]) -> dict[Node, Level]:
    """Return the relations between the elements of `nodes_by_position` and the source."""
    levels = {}
    group, stride, offset = 1, 1, 0
    for node in reversed(above):
        inputs = node.input_positions()
        assert inputs is not None
        offset += inputs.offset * stride
        stride *= inputs.stride
        group *= inputs.group
        levels[node] = Level(group, stride, offset)
    return levels


def position_below(above: Sequence[Node], position: int) -> int:
    """Return how many elements of the source are before those of the element at `position`.

    Args:
        above: of `nodes_by_position`.
        position: of an element of the root, or the length of the root.
    """
    for node in above:
        inputs = node.input_positions()
        assert inputs is not None
        position = min(position * inputs.stride + inputs.offset, length_of(node.inputs[0]))
    return position
