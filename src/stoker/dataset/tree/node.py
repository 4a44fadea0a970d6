"""`Node`, the immutable element of a pipeline tree, and `Context`, which opens a node."""

import functools
import operator
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Self

import msgspec
import numpy as np

from stoker.dataset.drawn_seeds import Salt
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.positions.input_positions import InputPositions
from stoker.dataset.positions.position_log import PositionLog
from stoker.dataset.streams.calls.task_calls import TaskCalls
from stoker.dataset.streams.failures import Origin, OriginInWhole, StreamOrigin
from stoker.dataset.streams.measure.recording import Meters
from stoker.dataset.streams.measure.statistics import Statistics
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.splits import ENDLESS, IndexSplits, SplitReader, Splits, StaticShard
from stoker.dataset.tree.table import Allocate, Table
from stoker.elements.common_spec import common_spec
from stoker.elements.spec import Spec, UnknownSpec
from stoker.errors import FailedPreconditionError

AUTOTUNE = -1
INFINITE_CARDINALITY = -1
UNKNOWN_CARDINALITY = -2


def unless_finite(cardinality: int) -> int:
    """Return the cardinality of what keeps an unknown part of the elements: none or without end."""
    return cardinality if cardinality in (0, INFINITE_CARDINALITY) else UNKNOWN_CARDINALITY


SHARD_HINT = -1
"""Placeholder of shard arguments for ShardingPolicy.HINT; as tf.data.experimental.SHARD_HINT."""


class RemoteEpoch(NamedTuple):
    """A deterministic epoch of a service, which computes what `tree` computes in this process.

    Attributes:
        tree: without the functions of the user.
        length: the number of positions; ENDLESS without end.
        consumers: the number of processes that divide the epoch.
    """

    tree: "Node"
    length: int
    consumers: int


class Node(msgspec.Struct, frozen=True, eq=False, kw_only=True, weakref=True):
    """A step of a pipeline.

    A subclass names its wire tag in `kind`; its definition registers the class. Fields annotated
    `Node` or ``tuple[Node, ...]`` (at most one, the last) are its inputs, fields annotated
    `Pickled` (or ``Pickled | None``) are sent as blobs that only a worker unpickles, all remaining
    fields are plain msgspec types. A random node has a `seed`, the user's or None, and a `salt`,
    which is not sent. Nodes compare by identity.

    Attributes:
        kind: the wire tag.
        tuning: fields that affect its speed and never its elements.
        unrepeatable: the reason that an epoch cannot be repeated and resumed from a state;
            completes "... has no state: ". Empty if an epoch can be repeated and resumed.
        forwards_elements: the node yields each element of its inputs once and keeps no reference.
        sums_inputs: the cardinality is the sum of the inputs' cardinalities, however split.
        uncounted: why the positions of its elements are not known, and what to write instead.
        site: the user's line that built the node, such as ``"train.py:12"``; not part of the
            structure.
    """

    kind: ClassVar[str]
    tuning: ClassVar[frozenset[str]] = frozenset()
    unrepeatable: ClassVar[str] = ""
    forwards_elements: ClassVar[bool] = False
    sums_inputs: ClassVar[bool] = False
    uncounted: ClassVar[str] = (
        "how many elements it has is known only by reading; make numbers or file names with "
        "`range` or `from_tensor_slices` and read each in `map`, or use "
        'processing_mode="distributed_epoch"'
    )
    site: str = ""

    @property
    def stage_kind(self) -> str:
        """The kind under which users know the node; differs for nodes that `fused` makes."""
        return getattr(self, "kind", "")  # a node that is never sent needs no kind

    @property
    def origin(self) -> Origin:
        """The origin of the errors that belong to this node, without the number of an element."""
        return Origin(self.stage_kind, self.site, None)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        # A subclass without a kind is never sent, and must not replace its base in the registry.
        kind = cls.__dict__.get("kind")
        if kind is not None:
            registry[kind] = cls

    @property
    def inputs(self) -> "tuple[Node, ...]":
        """The nodes that this node reads, in the order of its fields."""
        layout = layout_of(type(self))
        several = getattr(self, layout.several) if layout.several else ()
        return (*(getattr(self, name) for name in layout.inputs), *several)

    def with_inputs(self, inputs: "Sequence[Node]") -> Self:
        """Return this node with new `inputs`; this node itself for the same input objects."""
        # A cache knows its elements by the node object, so unchanged nodes stay the same objects.
        if all(map(operator.is_, inputs, self.inputs)):
            return self
        return msgspec.structs.replace(self, **layout_of(type(self)).input_fields(inputs))

    def element_spec(self) -> Spec:
        """Return the known spec of the elements; user code is never run to infer a spec."""
        raise NotImplementedError

    def cardinality(self) -> int:
        """Return the number of elements, INFINITE_CARDINALITY or UNKNOWN_CARDINALITY."""
        raise NotImplementedError

    def function_name(self) -> str:
        """Return the name of the user's function that the node calls; "" if none is unpickled."""
        for name in layout_of(type(self)).pickled:
            function = getattr(self, name)
            # Unpickling runs code of the user, which a name in a table is not worth.
            if name.endswith("function") and function is not None and function.is_unpickled:
                return _name_of(function.value)
        return ""

    def shown_kind(self) -> str:
        """Return the kind as the representation of a dataset shows it."""
        return self.kind

    def remote_tree(self) -> bytes:
        """Return the wire form of the tree that workers run for this node; b"" for none."""
        return b""

    def remote_epoch(self) -> RemoteEpoch | None:
        """Return the deterministic epoch of a service that the source reads; ``None`` for none."""
        return None

    def counted(self) -> "Node":
        """Return the node with the cardinality of an epoch that nothing disturbs; for ``len``.

        By default the node itself. Differs for a job of a service, whose cardinality is unknown
        because workers may be lost.
        """
        return self

    def division(self) -> tuple[int, int] | None:
        """Return (count, index) if the node yields the part of process `index` of `count`.

        Functions above draw the random numbers that they would draw without this node.
        """
        return None

    def inputs_per_element(self) -> int | None:
        """Return the number of input elements per element, if constant.

        The last element may need fewer. ``None`` if the number depends on the elements, or the
        node does not have exactly one input. A `zip` of nodes with a number can be split
        (`splitting.py`).
        """
        return None

    def input_positions(self) -> InputPositions | None:
        """Return which inputs an element is made of, if this follows from the element's position.

        ``None`` if the positions depend on the elements or are random, or the node does not have
        exactly one input.
        """
        return None

    def fused(self) -> "Node":
        """Return the node to run in place of this node and its inputs; by default this node."""
        return self

    def open(self, context: "Context") -> Stream:
        """Open the node and its inputs for an epoch."""
        raise NotImplementedError

    def table(self) -> Table | None:
        """Return the table whose rows the elements are; ``None`` if elements must be computed.

        A node with a table can be opened with `Context.as_rows`.
        """
        return None

    def splits(self) -> Splits | None:
        """Return how the source can be split; ``None`` for a node that is not a source.

        A node with inputs and splits replaces all sources below.
        """
        return None

    def split_inputs(self) -> "tuple[Node, ...]":
        """Return the inputs whose splits are assigned; each task reads all remaining inputs."""
        return self.inputs

    def list_splits(self, context: "Context") -> list[Any]:
        """List the splits of a `ListedSplits` source as builtin values; called on a worker."""
        raise NotImplementedError

    def list_in_order(self, context: "Context") -> list[Any]:
        """List the splits in the order in which static shards divide them, the same in each epoch.

        The source of a shard puts its part in the order of the epoch.
        """
        return self.list_splits(context)


class IndexSource(Node, frozen=True, eq=False, kw_only=True):
    """A source of known cardinality, whose elements are read by their index."""

    def splits(self) -> IndexSplits:
        count = self.cardinality()
        return IndexSplits(ENDLESS if count == INFINITE_CARDINALITY else count)


class OneInput(Node, frozen=True, eq=False, kw_only=True):
    """A node with a single input; by default the node yields some of the input's elements.

    Attributes:
        input: the node below.
        one_to_one: the node yields an element per input element.
        keeps_endless: the node yields elements without end of an endless input, and else an unknown
            number.
        selects_rows: the node only selects and orders elements, and its stream passes on
            `RowNumbers`, too.
    """

    one_to_one: ClassVar[bool] = False
    keeps_endless: ClassVar[bool] = False
    selects_rows: ClassVar[bool] = False
    uncounted: ClassVar[str] = (
        "the positions of its elements are known only by computing; apply it after `distribute`, "
        'or use processing_mode="distributed_epoch"'
    )
    input: Node

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        whole = self.input.cardinality()
        if self.one_to_one or not whole:
            return whole
        return unless_finite(whole) if self.keeps_endless else UNKNOWN_CARDINALITY

    def inputs_per_element(self) -> int | None:
        return 1 if self.one_to_one else None

    def table(self) -> Table | None:
        return self.input.table() if self.selects_rows else None


class SeveralInputs(Node, frozen=True, eq=False, kw_only=True):
    """A node that yields elements of several inputs; by default all elements of all inputs.

    Attributes:
        parts: the inputs that have the elements.
    """

    forwards_elements: ClassVar[bool] = True
    uncounted: ClassVar[str] = (
        "it combines other datasets than numbers and arrays in memory; apply it before `map`, if "
        'these are its inputs, or after `distribute`, or use processing_mode="distributed_epoch"'
    )
    parts: tuple[Node, ...]

    def element_spec(self) -> Spec:
        return functools.reduce(common_spec, (part.element_spec() for part in self.parts))

    def cardinality(self) -> int:
        counts = [part.cardinality() for part in self.parts]
        if INFINITE_CARDINALITY in counts:
            return INFINITE_CARDINALITY
        return UNKNOWN_CARDINALITY if UNKNOWN_CARDINALITY in counts else sum(counts)

    def split_inputs(self) -> tuple[Node, ...]:
        return self.parts


class FunctionOfElements(OneInput, frozen=True, eq=False, kw_only=True):
    """A node that calls a user's function with each element of its input.

    Attributes:
        function: the user's; returns an element, or a dataset of elements.
        spec: the element_spec that the user declared.
    """

    function: Pickled
    spec: Pickled | None = None

    def element_spec(self) -> Spec:
        return declared_spec(self.spec)


def declared_spec(declared: Pickled | None) -> Spec:
    """Return the spec that the user declared; UnknownSpec if the user declared none."""
    return UnknownSpec() if declared is None else declared.value


def _name_of(function: Any) -> str:
    function = getattr(function, "func", function)  # of functools.partial
    name: str = getattr(function, "__name__", type(function).__name__)
    return name.replace("<lambda>", "lambda")


registry: dict[str, type[Node]] = {}
"""Node classes by kind; the definition of a class registers the class."""


class Layout(msgspec.Struct, frozen=True):
    """The fields of a node class, grouped by their representation in the wire form."""

    inputs: tuple[str, ...]
    several: str | None
    pickled: tuple[str, ...]
    plain: dict[str, Any]

    def input_fields(self, inputs: Sequence[Node]) -> dict[str, Any]:
        """Return the fields of a node that reads `inputs`."""
        fixed = len(self.inputs)
        fields: dict[str, Any] = dict(zip(self.inputs, inputs[:fixed], strict=True))
        if self.several is not None:
            fields[self.several] = tuple(inputs[fixed:])
        return fields


@functools.cache
def layout_of(cls: type[Node]) -> Layout:
    """Return the layout of a node class, from the annotations of its fields."""
    inputs: list[str] = []
    several: str | None = None
    pickled: list[str] = []
    plain: dict[str, Any] = {}
    hints = typing.get_type_hints(cls)
    for name in cls.__struct_fields__:
        hint = hints[name]
        if hint is Node:
            inputs.append(name)
        elif hint == tuple[Node, ...]:
            several = name
        elif hint is Pickled or Pickled in typing.get_args(hint):
            pickled.append(name)
        elif name != "site" and hint is not Salt:
            plain[name] = hint
    return Layout(tuple(inputs), several, tuple(pickled), plain)


def is_dataset(value: Any) -> bool:
    """Return True for a `Dataset`, which the layers below know by its tree."""
    return isinstance(getattr(value, "node", None), Node)


def number(root: Node) -> dict[Node, int]:
    """Return the position of each node in the wire form: inputs first, shared nodes once."""
    # A stack, not recursion: trees may be deeper than Python's limit of frames.
    numbers: dict[Node, int] = {}
    stack = [root]
    while stack:
        node = stack[-1]
        if node in numbers:
            stack.pop()
            continue
        waiting = [child for child in reversed(node.inputs) if child not in numbers]
        if waiting:
            stack.extend(waiting)
        else:
            numbers[node] = len(numbers)
            stack.pop()
    return numbers


def _no_dataset(root: Node) -> Any:
    raise FailedPreconditionError(
        f"`{root.kind}` is passed to a function as a Dataset, but the context that opened the "
        "pipeline has no `make_dataset`"
    )


class Context(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """The arguments of opening a tree for an epoch.

    Attributes:
        seed: replaces the seeds that the user did not give.
        seed_given: the user gave the seed (`Options.seed`); otherwise the seed was drawn.
        seed_globals: seed the global generators of the process for each call of a user function.
        salts: of the random nodes, by number.
        epoch: the number of the epoch, then a number per enclosing repeat or flat_map.
        explicit_epoch: the caller chose the epoch.
        numbers: the number of every node of the tree.
        splits: assigns splits to sources; ``None``: sources read all elements.
        shard: the part of the tree that is read, if not all data; ``None`` with `splits`.
        make_dataset: wraps a tree in the `Dataset` that user functions receive.
        allocate: allocates the arrays of batches that leave the pipeline; see `allocate_for`.
        output_nodes: the nodes whose batches leave the pipeline.
        threads: the most pool threads of a stream; ``None``: only the limit of the pool.
        autotune_bytes: the most bytes that a step with AUTOTUNE may buffer; ``None``: depends on
            the number of cores.
        statistics: counters of the streams that the reader may ask for.
        meters: measurements of the stages of the tree.
        record_classes: returns the namedtuple and dataclass classes that the functions of the tree
            refer to; stored elements are rebuilt with these classes.
        as_rows: chunks are the `RowNumbers` of the elements in `Node.table`, which is not None.
        calls: records the calls of user functions in flight; ``None``: calls are not recorded.
        positions: the positions in the whole epoch of what is read; ``None``: those in the stream.
        bases: number of a node above a service → the position in the whole epoch of the first
            element that it yields, if that is not 0.
    """

    seed: int = 0
    seed_given: bool = False
    seed_globals: bool = False
    salts: Mapping[int, int] = msgspec.field(default_factory=dict)
    epoch: tuple[int, ...] = (0,)
    explicit_epoch: bool = False
    numbers: Mapping[Node, int] = msgspec.field(default_factory=dict)
    splits: SplitReader | None = None
    shard: StaticShard | None = None
    make_dataset: Callable[[Node], Any] = _no_dataset
    allocate: Allocate = np.empty
    output_nodes: frozenset[Node] = frozenset()
    threads: int | None = None
    autotune_bytes: int | None = None
    statistics: Statistics = msgspec.field(default_factory=Statistics)
    meters: Meters = msgspec.field(default_factory=Meters)
    record_classes: Callable[[], Iterable[type]] = tuple
    as_rows: bool = False
    calls: TaskCalls | None = None
    positions: PositionLog | None = None
    bases: Mapping[int, int] = msgspec.field(default_factory=dict)

    def open(self, node: Node) -> Stream:
        """Open a node, and measure its stream; nodes open their inputs by this."""
        stream = node.open(self)
        self.meters.watch(node, self.numbers, stream)
        return stream

    def origin(self, node: Node) -> StreamOrigin:
        """Return the origin of the errors of a node, with the numbers of the whole epoch."""
        if self.positions is None:
            return node.origin
        in_whole = functools.partial(self.positions.position, self.numbers[node])
        return OriginInWhole(node.origin, in_whole)

    def seed_of(self, node: Node, given: int | None) -> int:
        """Return the seed of a random node.

        Args:
            node: a node of the tree that `numbers` numbers.
            given: the user's seed of the node; ``None``: none.
        """
        if given is None and self.seed_given:
            return self.seed
        return (self.seed if given is None else given) ^ self.salts.get(self.numbers[node], 0)

    # Only batches that no later node can hold are assembled in shared memory: a function or a cache
    # after a batch might see what the trainer writes in place. (docs/decisions/028)
    def allocate_for(self, node: Node) -> Allocate:
        """Return the function that allocates the batches of `node`.

        The memory of `allocate` may be lent to another process that writes to this memory.
        Therefore only batches that no later node can hold are allocated there: only nodes that
        forward elements follow. All remaining batches are allocated by `numpy.empty`.
        """
        return self.allocate if node in self.output_nodes else np.empty

    def inner(self, k: int, meters: Meters | None = None) -> "Context":
        """Return the context of the k-th opening of the tree below a node.

        Args:
            k: counts the openings.
            meters: of this opening; None for the meters of the context.
        """
        return msgspec.structs.replace(self, epoch=(*self.epoch, k), meters=meters or self.meters)

    def whole(self) -> "Context":
        """Return the context of an input of which every task reads all elements."""
        return msgspec.structs.replace(self, splits=None, shard=None)

    def part_reader(self, node: Node) -> SplitReader | None:
        """Return the supplier of the part of the data that `node` reads; ``None`` for all data.

        Elements that a node stores are for the epochs of a single reader.
        """
        if self.shard is not None and self.numbers[node] in self.shard.nodes:
            return self.shard.reader
        return self.splits

    def nested(self, root: Node, k: int, meters: Meters) -> "Context":
        """Return the context of a dataset that a function returns, which reads all its elements.

        Its draws follow from the element that was the function's argument, not from the salts that
        the dataset has if constructed before.

        Args:
            root: of the dataset.
            k: the number of the dataset.
            meters: of the dataset.
        """
        return msgspec.structs.replace(
            self,
            splits=None,
            shard=None,
            # Draws follow from the element that was the function's argument, so that a dataset that
            # was constructed before draws as one that the function constructs.
            epoch=(*self.epoch, k),
            numbers=number(root),
            salts={},
            allocate=np.empty,
            meters=meters,
        )
