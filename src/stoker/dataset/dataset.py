"""`Dataset`: a tree with options, a seed and passes; its methods stand in `fluent/`."""

import os
import threading
from collections.abc import Callable
from typing import Any, Self, TypeVar

from stoker.dataset import arguments
from stoker.dataset.fluent.batching import Batching
from stoker.dataset.fluent.combining import Combining
from stoker.dataset.fluent.elementwise import Elementwise
from stoker.dataset.fluent.files import Files
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.fluent.grouping import Grouping
from stoker.dataset.fluent.keeping import Keeping
from stoker.dataset.fluent.ordering import Ordering
from stoker.dataset.fluent.sources import Sources
from stoker.dataset.iterator import Iterator
from stoker.dataset.options import Options
from stoker.dataset.state import State, check_resumable, digest_of, parse_state
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    number,
)
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.elements.spec import Spec
from stoker.errors import InvalidArgumentError

_Result = TypeVar("_Result")
_passes_lock = threading.Lock()


class _DrawnSeed:
    """A seed drawn when first needed; shared by what is derived from a dataset.

    So that ``take(n)`` and ``skip(n)`` of one shuffled dataset part it, as with tf.data.
    """

    def __init__(self, value: int | None = None) -> None:
        self._value = value

    def get(self) -> int:
        with _passes_lock:
            if self._value is None:
                self._value = int.from_bytes(os.urandom(8), "little")
            return self._value

    def adopt(self, value: int) -> None:
        """Be this one: a pass that had drawn it is continued here."""
        with _passes_lock:
            self._value = value


class Dataset(Sources, Files, Elementwise, Batching, Grouping, Combining, Ordering, Keeping):
    """An immutable description of a pipeline: where elements come from and what happens to them.

    Methods follow `tf.data.Dataset` in name and meaning and return new datasets. Nothing is read
    before iteration; each ``iter(dataset)`` is a pass of its own. Functions are plain Python
    functions; an element that is a tuple is passed to them as separate arguments. A dataset is
    always true and may be pickled.

    Example:
        >>> from stoker import Dataset
        >>> list(Dataset.range(10).filter(lambda x: x % 2).map(lambda x: x * x))
        [1, 9, 25, 49, 81]
    """

    def __init__(
        self, node: Node, options: Options | None = None, *, _seed: _DrawnSeed | None = None
    ) -> None:
        if not isinstance(node, Node):
            raise InvalidArgumentError(
                "datasets are made by the class methods of Dataset, such as "
                f"Dataset.from_tensor_slices([1, 2]); got {node!r}"
            )
        self._node = node
        self._options = options or Options()
        self._seed = _seed or _DrawnSeed()
        self._passes = 0

    @property
    def node(self) -> Node:
        """The tree, as it is executed and sent."""
        return self._node

    @classmethod
    def _source(cls, node: Node) -> Self:
        return cls(node)

    def _derive(self, node: Node, *others: Fluent) -> Self:
        options = self._options
        for other in others:
            assert isinstance(other, Dataset)
            options = options.merge(other._options)
        return type(self)(node, options, _seed=self._seed)

    def apply(self, transformation_func: Callable[["Dataset"], _Result]) -> _Result:
        """What the function makes of this dataset; as tf.data.Dataset.apply.

        Args:
            transformation_func: from a Dataset to a Dataset.

        Raises:
            InvalidArgumentError: the function cannot be called or returns something else.

        Example:
            >>> list(Dataset.range(6).apply(lambda dataset: dataset.skip(4)))
            [4, 5]
        """
        arguments.function("transformation_func", transformation_func)
        result = transformation_func(self)
        if not isinstance(result, Dataset):
            raise InvalidArgumentError(
                f"`transformation_func` must return a Dataset; it returned {result!r}"
            )
        return result

    def distribute(
        self, service: Any, *, processing_mode: Any = "distributed_epoch", **settings: Any
    ) -> "Dataset":
        """What comes before runs on a service's workers; what comes after runs here.

        Args:
            service: ``"grpc://host:port"`` of a dispatcher, or a LocalCluster.
            processing_mode: a ShardingPolicy or its name; the default hands each element to one
                worker.
            **settings: as for `stoker.service.distribute`.

        Raises:
            InvalidArgumentError: a setting is wrong.
            UnimplementedError: a source cannot be split, as ``"distributed_epoch"`` needs.
        """
        from stoker.service import distribute

        transformation = distribute(processing_mode, service, **settings)
        result: Dataset = transformation(self)
        return result

    def with_options(self, options: Options) -> Self:
        """The dataset with these options set; as tf.data.Dataset.with_options.

        Args:
            options: what they leave at its default keeps its value.

        Raises:
            InvalidArgumentError: `options` are none.

        Example:
            >>> Dataset.range(3).with_options(Options(seed=7)).options().seed
            7
        """
        if not isinstance(options, Options):
            raise InvalidArgumentError(f"`options` must be stoker.Options; got {options!r}")
        return type(self)(self.node, self._options.merge(options), _seed=self._seed)

    def options(self) -> Options:
        """The options in force; as tf.data.Dataset.options."""
        return self._options

    @property
    def element_spec(self) -> Spec:
        """What is known or declared of the elements; as tf.data.Dataset.element_spec.

        Example:
            >>> Dataset.range(3).element_spec
            TensorSpec(shape=(), dtype=int64)
        """
        return self.node.element_spec()

    def cardinality(self) -> int:
        """How many elements; as tf.data.Dataset.cardinality.

        Returns:
            A count, `stoker.INFINITE_CARDINALITY` (-1) or `stoker.UNKNOWN_CARDINALITY` (-2).

        Example:
            >>> Dataset.range(10).batch(4).cardinality()
            3
        """
        return self.node.cardinality()

    def __len__(self) -> int:
        cardinality = self.cardinality()
        if cardinality == INFINITE_CARDINALITY:
            raise TypeError("the dataset is infinite and has no length; take(n) bounds it")
        if cardinality == UNKNOWN_CARDINALITY:
            raise TypeError("the length of the dataset is known only by reading it")
        return cardinality

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        kinds = ".".join(node.kind for node in number(self.node))
        return f"<Dataset {kinds} element_spec={self.element_spec!r}>"

    def __iter__(self) -> Iterator:
        return self.iterator()

    def iterator(self, *, state: Any = None, epoch: int | None = None) -> Iterator:
        """Begins a pass, or goes on with one.

        Args:
            state: of an iterator of the same pipeline (`Iterator.state_dict`), in whatever process
                it ran: the new one goes on where it stood. What was read is passed as cheaply as
                the pipeline allows (docs/datasets.md says how). Seeds it had drawn are this
                dataset's from now on, and its next pass is the one after.
            epoch: which pass this is; ``None``: this dataset object's next.

        Raises:
            InvalidArgumentError: `epoch` is negative, or `state` is of another pipeline, seed or
                version, or says more was read than there is.
            UnimplementedError: a state is given, and the dataset reads from a service.

        Example:
            >>> dataset = Dataset.range(100).shuffle(100, seed=1)
            >>> list(dataset.iterator(epoch=3)) == list(dataset.iterator(epoch=3))
            True
        """
        if state is not None:
            return self._resume(state, epoch)
        explicit = epoch is not None
        if explicit:
            which = arguments.integer(
                "epoch", epoch, minimum=0, what="an int of 0 or more, or None"
            )
        else:
            with _passes_lock:
                which = self._passes
                self._passes += 1
        stream, context = self._open(which, explicit=explicit)
        return Iterator(stream, context.statistics, lambda: self._state(context, 0))

    def _resume(self, given: Any, epoch: int | None) -> Iterator:
        if epoch is not None:
            raise InvalidArgumentError(
                f"`epoch` and `state` exclude each other: the state names its pass; got {epoch!r}"
            )
        state = parse_state(given, self.node, self._options.seed)
        self._seed.adopt(state.seed)
        with _passes_lock:
            self._passes = state.epoch + 1
        stream, context = self._open(state.epoch, explicit=True)
        try:
            passed = stream.advance(state.position)
            if passed < state.position:
                raise InvalidArgumentError(
                    f"`state` says {state.position} elements were read, but there are {passed}; "
                    "the source has changed since"
                )
        except BaseException:
            stream.close()
            raise
        return Iterator(stream, context.statistics, lambda: self._state(context, state.position))

    def _open(self, epoch: int, *, explicit: bool) -> tuple[Stream, Context]:
        seed = self._options.seed
        context = Context(
            seed=self._seed.get() if seed is None else seed,
            seed_given=seed is not None,
            epoch=(epoch,),
            explicit_epoch=explicit,
            threads=self._options.threads,
            autotune_bytes=self._options.autotune_bytes,
            make_dataset=Dataset,
        )
        return open_stream(self.node, context), context

    def _state(self, context: Context, position: int) -> State:
        check_resumable(self.node)
        return State(
            structure=digest_of(self.node),
            seed=context.seed,
            epoch=context.epoch[0],
            position=position,
        )

    def as_numpy_iterator(self) -> Iterator:
        """Begins a pass; as tf.data.Dataset.as_numpy_iterator.

        Elements are NumPy and Python values already, so this is `iterator`.

        Example:
            >>> list(Dataset.range(3).as_numpy_iterator())
            [0, 1, 2]
        """
        return self.iterator()

    def __reduce__(self) -> tuple[Any, ...]:
        tree = encode_tree(self.node)
        return _restore, (type(self), tree, self._options, self._seed.get(), self._passes)


def _restore(cls: type[Dataset], tree: bytes, options: Options, seed: int, passes: int) -> Dataset:
    dataset = cls(decode_tree(tree), options, _seed=_DrawnSeed(seed))
    dataset._passes = passes
    return dataset
