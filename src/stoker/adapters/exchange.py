"""Maps before a shuffle, moved behind the shuffle, so that only elements that are read are
computed.

A shuffle of what maps return keeps computed elements in its buffer, whether read or not: each rank
would compute the elements of all ranks. Over a table (a range, arrays in memory) both orders are
equivalent: no function of the user runs below the maps, every element is at hand, and an error of
a map occupies the position of its element in both. Elements carry their position before the
shuffle, since this position is the key of the random numbers of a function.
"""

from collections.abc import Callable
from typing import Any, ClassVar

from msgspec.structs import replace

from stoker.dataset import nodes
from stoker.dataset.dataset import Dataset
from stoker.dataset.random import Calls, in_whole
from stoker.dataset.streams.failures import Origin, raise_failure
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
        function = super().called(context)
        return _AtPosition(function, keyed, source, self.origin, self.yields_pairs)


class _AtPosition:
    """A function that is called with the position of its element, then the element."""

    def __init__(
        self,
        function: Callable[..., Any],
        context: Context,
        node: Node,
        origin: Origin,
        yields_pairs: bool,
    ) -> None:
        self._function = function
        self._origin = origin
        self._context = context
        self._node = node
        self._yields_pairs = yields_pairs

    def __call__(self, position: int, element: Any) -> Any:
        calls = Calls(self._context, self._node).over(iter((element,)), position + 1)
        try:
            with calls as elements:
                result = apply(self._function, next(elements))
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, self._origin.at(position, element))
        return (position, result) if self._yields_pairs else result


def with_maps_after_shuffle(dataset: Dataset) -> Dataset:
    """Return an equal dataset whose last shuffle precedes the maps of its input, if possible."""
    above = []
    node = dataset.node
    while node.kind in _ABOVE:
        above.append(node)
        [node] = node.inputs
    if not isinstance(node, nodes.Shuffle):
        return dataset
    shuffle, passed, source = node, [], node.input
    while source.kind in ("map", "prefetch"):
        passed.append(source)
        [source] = source.inputs
    maps = [node for node in passed if isinstance(node, nodes.Map)]
    if not maps or source.table() is None:
        return dataset
    node = ShuffleBeforeMaps(
        input=source,
        buffer_size=shuffle.buffer_size,
        seed=shuffle.seed,
        salt=shuffle.salt,
        reshuffle_each_iteration=shuffle.reshuffle_each_iteration,
        passed=len(passed),
        site=shuffle.site,
    )
    for moved in reversed(passed):
        if isinstance(moved, nodes.Map):
            node = MapAfterShuffle(
                input=node,
                function=moved.function,
                num_parallel_calls=moved.num_parallel_calls,
                spec=moved.spec,
                yields_pairs=moved is not maps[0],
                site=moved.site,
            )
        else:
            node = moved.with_inputs([node])
    for upper in reversed(above):
        node = upper.with_inputs([node])
    return dataset._with_node(node)
