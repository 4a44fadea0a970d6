"""Maps before a shuffle, moved behind the shuffle, so that only elements that are read are
computed.

A shuffle of what maps return keeps computed elements in its buffer, whether read or not: each rank
would compute the elements of all ranks. Over a table (a range, arrays in memory) both orders are
equivalent: no function of the user runs below the maps, every element is at hand, and an error of
a map occupies the position of its element in both. Elements carry their position before the
shuffle, since this position is the key of the random numbers of a function.
"""

from collections.abc import Callable, Collection
from typing import Any, ClassVar

from msgspec.structs import asdict, replace

from stoker.dataset import nodes
from stoker.dataset.dataset import Dataset
from stoker.dataset.random import Calls, in_whole
from stoker.dataset.streams.failures import raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.tree.table import Table
from stoker.dataset.unpacking import apply

MOVED_MAP = "moved_map"

_ABOVE = ("map", "prefetch", "batch", "padded_batch", "cache", "repeat", "take", "skip")


class ShuffleBeforeMaps(nodes.Shuffle, frozen=True, eq=False, kw_only=True):
    """A shuffle that stood behind maps; yields pairs of a position and its element.

    Attributes:
        passed: nodes that preceded the shuffle and now follow the shuffle.
    """

    kind: ClassVar[str] = "shuffle_before_maps"
    passed: int

    @property
    def stage_kind(self) -> str:
        return "shuffle"

    def table(self) -> Table | None:
        return None

    def open(self, context: Context) -> Stream:
        shuffle = nodes.Shuffle(
            input=nodes.Enumerate(input=self.input),
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
        yields_pairs: another such map follows.
    """

    kind: ClassVar[str] = MOVED_MAP
    yields_pairs: bool

    @property
    def stage_kind(self) -> str:
        return "map"

    def called(self, context: Context) -> Callable[..., Any]:
        number, _ = in_whole(context, self, 0)
        source: Node = self
        while not isinstance(source, ShuffleBeforeMaps):
            [source] = source.inputs
        [source] = source.inputs
        # Below the shuffle nothing is divided: positions there are positions in the whole.
        keyed = replace(context, numbers={**context.numbers, source: number - 1})
        origin = self.origin
        function = super().called(context)

        def at_position(position: int, element: Any) -> Any:
            calls = Calls(keyed, source).over(iter((element,)), position + 1)
            try:
                with calls as elements:
                    result = apply(function, next(elements))
            except Exception as error:  # noqa: BLE001 - user code may raise anything
                raise_failure(error, origin.at(position, element))
            return (position, result) if self.yields_pairs else result

        return at_position


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


def with_maps_after_shuffle(dataset: Dataset) -> Dataset:
    """Return an equal dataset whose last shuffle precedes the maps of its input, if possible."""
    above, shuffle = nodes_above(dataset.node, _ABOVE)
    if not isinstance(shuffle, nodes.Shuffle):
        return dataset
    passed, source = nodes_above(shuffle.input, ("map", "prefetch"))
    maps = [node for node in passed if isinstance(node, nodes.Map)]
    # Over a generator the shuffle would hold arrays that the generator may fill again.
    if not maps or source.table() is None:
        return dataset
    # All fields are copied, so that a field that is added to Shuffle is not lost.
    node: Node = ShuffleBeforeMaps(**asdict(shuffle) | {"input": source, "passed": len(passed)})
    for moved in reversed(passed):
        if isinstance(moved, nodes.Map):
            changes = {"input": node, "yields_pairs": moved is not maps[0]}
            node = MapAfterShuffle(**asdict(moved) | changes)
        else:
            node = moved.with_inputs([node])
    return dataset._with_node(put_below(above, node))
