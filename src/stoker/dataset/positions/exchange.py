"""Maps before shuffles, moved behind them, so that only elements that are read are computed.

A shuffle of what maps return keeps computed elements in its buffer, whether read or not: each
reader of a part would compute the elements of all parts. Over a table (a range, arrays in memory)
both orders are equivalent: no function of the user runs below the maps, every element is at hand,
and an error of a map occupies the position of its element in both. Elements carry their position
before each shuffle, since this position is the key of the random numbers of a function.
"""

from collections.abc import Callable, Collection
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import asdict, replace

from stoker.dataset import nodes
from stoker.dataset.positions.first_epoch import FirstEpoch
from stoker.dataset.random import (
    Calls,
    CallsAtPositions,
    begin_at,
    number_in_whole,
    stream_calls,
)
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.table import Table
from stoker.dataset.unpacking import apply

MOVED_MAP = "moved_map"

_MOVED = (nodes.Map, nodes.Prefetch)
_PASSED = (*_MOVED, nodes.Shuffle, nodes.Take, nodes.Skip, nodes.Shard, FirstEpoch)


class ShuffleBeforeMaps(nodes.Shuffle, frozen=True, eq=False, kw_only=True):
    """A shuffle that stood behind maps.

    Attributes:
        passed: its number in the tree is less by this number than at its former place.
        pairs: yields pairs of a position in its input and the element.
    """

    kind: ClassVar[str] = "shuffle_before_maps"
    passed: int
    pairs: bool = True

    @property
    def stage_kind(self) -> str:
        return "shuffle"

    def _read(self) -> Node:
        return nodes.Enumerate(input=self.input) if self.pairs else self.input

    def table(self) -> Table | None:
        return self._read().table()

    def open(self, context: Context) -> Stream:
        shuffle = nodes.Shuffle(
            input=self._read(),
            buffer_size=self.buffer_size,
            seed=self.seed,
            reshuffle_each_iteration=self.reshuffle_each_iteration,
        )
        # The draws are the draws of the node at its former place.
        number = context.numbers[self]
        numbers = {**context.numbers, shuffle: number + self.passed}
        salts = {**context.salts, number + self.passed: context.salts.get(number, 0)}
        return shuffle.open(replace(context, numbers=numbers, salts=salts))


class MapAfterShuffle(nodes.Map, frozen=True, eq=False, kw_only=True):
    """A map that preceded a shuffle, and reads pairs of a position and an element.

    Attributes:
        passed: its number in the tree is greater by this number than at its former place.
        outer: pairs around its pair, of shuffles behind further maps.
        yields_pairs: another such map of the same pair follows.
        stride: position p in its pair is that of its element ``p * stride + offset``.
        offset: see `stride`.
        in_first_epoch: a cache follows, whose elements are those of the epoch 0.
    """

    kind: ClassVar[str] = MOVED_MAP
    passed: int
    outer: int = 0
    yields_pairs: bool
    stride: int = 1
    offset: int = 0
    in_first_epoch: bool = False

    @property
    def stage_kind(self) -> str:
        return "map"

    def keyed_calls(self, context: Context) -> Callable[[], Calls]:
        source: Node = self
        while source.inputs:
            source = source.inputs[0]
        # Below the shuffles nothing is divided: positions there are positions in the whole.
        number = number_in_whole(context, self) - self.passed
        epoch = (0,) if self.in_first_epoch else context.epoch
        numbers = {**context.numbers, source: number}
        keyed = replace(context, numbers=numbers, epoch=epoch, positions=None)
        recorded = partial(stream_calls, context, self)
        return partial(CallsAtPositions, keyed, source, recorded, self._position_of)

    def called(self, context: Context) -> Callable[..., Any]:
        origin, stride, offset = self.origin, self.stride, self.offset
        function = super().called(context)

        def at_position(position: int, element: Any) -> Any:
            position = position * stride + offset
            begin_at(position)
            try:
                return apply(function, element)
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                raise_failure(error, origin.at(position, element))

        if not self.outer and not self.yields_pairs:
            return at_position
        return self._within_pairs(at_position)

    def _position_of(self, pair: Any) -> int:
        """Return the position of an element in pairs."""
        for _ in range(self.outer):
            pair = pair[1]
        return int(pair[0]) * self.stride + self.offset

    def _within_pairs(self, function: Callable[[int, Any], Any]) -> Callable[[int, Any], Any]:
        """Return `function` for elements in outer pairs, and pairs for the map that follows."""

        def within(position: int, element: Any) -> Any:
            outer = []
            for _ in range(self.outer):
                outer.append(position)
                position, element = element
            result = function(position, element)
            if self.yields_pairs:
                result = position, result
            for position in reversed(outer):
                result = position, result
            return result

        return within


def nodes_above(node: Node, kinds: Collection[str]) -> tuple[list[Node], Node]:
    """Return the nodes of `kinds` that end a pipeline, from the last, and the node below them."""
    above = []
    while node.kind in kinds:
        above.append(node)
        [node] = node.inputs
    return above, node


def put_below(above: list[Node], node: Node) -> Node:
    """Return the pipeline of `node` and the nodes of `nodes_above`."""
    for upper in reversed(above):
        node = upper.with_inputs([node])
    return node


def passed_by(node: Node) -> int:
    """Return how much less the number of a random node is than at its former place."""
    return node.passed if isinstance(node, ShuffleBeforeMaps) else 0


def with_maps_behind_shuffle(shuffle: Node) -> Node:
    """Return an equal tree in which a shuffle precedes the maps of its input, if possible.

    Shuffles, `take`, `skip` and `shard` between the maps precede the maps, too. The tree has as
    many nodes as before.
    """
    passed: list[Node] = []
    node = shuffle
    while isinstance(node, _PASSED) and node.table() is None:
        passed.append(node)
        [node] = node.inputs
    # Over a generator the shuffle would hold arrays that the generator may fill again.
    if not isinstance(shuffle, nodes.Shuffle) or not passed or node.table() is None:
        return shuffle
    exchange = _Exchange(node)
    for place, each in enumerate(reversed(passed)):
        exchange.add(each, place)
    return exchange.result()


_Fields = dict[str, Any]


class _Exchange:
    """A tree in which the nodes that select rows precede the nodes that compute elements.

    Args:
        table: the node below.
    """

    def __init__(self, table: Node) -> None:
        self._rows = table
        self._selected = 0
        # Nodes that follow the shuffles, with their former place and the fields of moved maps.
        self._moved: list[tuple[Node, int, _Fields]] = []
        # Fields of the maps before the first shuffle, before the second, and so on.
        self._groups: list[list[_Fields]] = [[]]

    def add(self, node: Node, place: int) -> None:
        """Add a node that is `place` nodes above the table at its former place."""
        if isinstance(node, _MOVED):
            fields = {"stride": 1, "offset": 0}
            self._moved.append((node, place, fields))
            if isinstance(node, nodes.Map):
                self._groups[-1].append(fields)
            return
        if isinstance(node, nodes.Shuffle):
            self._rows = self._shuffled(node, place - self._selected)
        else:
            self._rows = node.with_inputs([self._rows])
        self._selected += 1
        if isinstance(node, FirstEpoch):
            for fields in (fields for group in self._groups for fields in group):
                fields["in_first_epoch"] = True
        elif (inputs := node.input_positions()) is not None:
            for fields in self._groups[-1]:
                fields["offset"] += inputs.offset * fields["stride"]
                fields["stride"] *= inputs.stride

    def result(self) -> Node:
        """Return the tree of all nodes that were added."""
        groups = self._groups[:-1]
        for level, group in enumerate(groups):
            for fields in group:
                fields["outer"] = len(groups) - 1 - level
                fields["yields_pairs"] = fields is not group[-1]
        node = self._rows
        for after, (moved, place, fields) in enumerate(self._moved):
            if isinstance(moved, nodes.Map):
                # All fields are copied, so that a field that is added to Map is not lost.
                passed = self._selected + after - place
                node = MapAfterShuffle(**asdict(moved) | fields | {"input": node, "passed": passed})
            else:
                node = moved.with_inputs([node])
        return node

    def _shuffled(self, node: nodes.Shuffle, passed: int) -> Node:
        pairs = bool(self._groups[-1])
        if pairs:
            self._groups.append([])
        fields = {"input": self._rows, "passed": passed, "pairs": pairs}
        return ShuffleBeforeMaps(**asdict(node) | fields)
