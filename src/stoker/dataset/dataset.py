"""`Dataset`: a tree with options, a seed and a count of epochs; its methods are in `fluent/`."""

import enum
import sys
import threading
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any, NoReturn, Protocol, Self, TypeVar

from stoker.dataset import arguments
from stoker.dataset.copies import note_unpickled, spawn_time
from stoker.dataset.drawn_seeds import (
    DrawnSeed,
    DrawnSeeds,
    adopt_salts,
    salts_by_number,
    salts_of,
)
from stoker.dataset.fluent.batching import Batching
from stoker.dataset.fluent.caching import Caching
from stoker.dataset.fluent.combining import Combining
from stoker.dataset.fluent.elementwise import Elementwise
from stoker.dataset.fluent.files import Files
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.fluent.grouping import Grouping
from stoker.dataset.fluent.ordering import Ordering
from stoker.dataset.fluent.sources import Sources
from stoker.dataset.iterator import Iterator, T_co
from stoker.dataset.nodes.cache import forget_draws
from stoker.dataset.options import Options
from stoker.dataset.reports.explanation import Explanation, outline
from stoker.dataset.reports.measurements import Measurements
from stoker.dataset.state import (
    Identity,
    IteratorState,
    bases_of,
    check_resumable,
    consumers_of,
    identity_of,
    parse_state,
    start_of,
)
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.local_form import local_form
from stoker.dataset.tree.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Context,
    Node,
    number,
)
from stoker.dataset.tree.rewrite import counted
from stoker.dataset.tree.wire_form import decode_tree, encode_tree
from stoker.elements.spec import Spec
from stoker.errors import InvalidArgumentError, InvalidTypeError

_Result = TypeVar("_Result")
_lock = threading.Lock()


class HasTarget(Protocol):
    """A `DispatchServer` or a `LocalCluster`."""

    @property
    def target(self) -> str:
        """Address of the dispatcher."""


class Dataset(
    Sources[T_co],
    Files[T_co],
    Elementwise[T_co],
    Batching[T_co],
    Grouping[T_co],
    Combining[T_co],
    Ordering[T_co],
    Caching[T_co],
):
    """An immutable description of a pipeline: a source of elements and their transformations.

    Methods follow `tf.data.Dataset` in name and meaning and return new datasets. Nothing is read
    before iteration; each ``iter(dataset)`` is a new epoch. Functions are plain Python functions;
    an element that is a tuple is passed as separate arguments. A dataset is always true
    and can be pickled.

    Example:
        >>> from stoker import Dataset
        >>> list(Dataset.range(10).filter(lambda x: x % 2).map(lambda x: x * x))
        [1, 9, 25, 49, 81]
    """

    def __init__(
        self, node: Node, options: Options | None = None, *, _seed: DrawnSeed | None = None
    ) -> None:
        if not isinstance(node, Node):
            raise InvalidTypeError(
                "datasets are constructed by the class methods of Dataset, such as "
                f"Dataset.from_tensor_slices([1, 2]); got {node!r}"
            )
        self._node = node
        self._options = options or Options()
        self._seed = _seed or DrawnSeed()
        self._epochs_started = 0
        self._measurements: Measurements | None = None
        """Measurements of the iterator that was made last."""

    @property
    def node(self) -> Node:
        """Root of the tree that is executed and sent to workers."""
        return self._node

    @classmethod
    def _source(cls, node: Node) -> Self:
        return cls(node)

    def _derive(self, node: Node, *others: Fluent[Any]) -> Self:
        options = self._options
        for other in others:
            assert isinstance(other, Dataset)
            options = options.merge(other._options)
        return type(self)(node, options, _seed=self._seed)

    def apply(self, transformation_func: Callable[[Self], _Result]) -> _Result:
        """Return the result of a function of this dataset.

        As `tf.data.Dataset.apply`.

        Args:
            transformation_func: called with this Dataset; returns a Dataset.

        Raises:
            InvalidTypeError: if the function is not callable or does not return a Dataset.

        Example:
            >>> list(Dataset.range(6).apply(lambda dataset: dataset.skip(4)))
            [4, 5]
        """
        arguments.function("transformation_func", transformation_func)
        result = transformation_func(self)
        if not isinstance(result, Dataset):
            raise InvalidTypeError(
                f"`transformation_func` must return a Dataset; it returned {result!r}"
            )
        return result

    def distribute(
        self,
        service: str | tuple[str, str] | HasTarget,
        processing_mode: enum.IntEnum | str | None = None,
        job_name: str | None = None,
        consumer_index: int | None = None,
        num_consumers: int | None = None,
        max_outstanding_requests: int | None = None,
        data_transfer_protocol: str | None = None,
        compression: str | None = "AUTO",
        cross_trainer_cache: Any = None,
        target_workers: str = "AUTO",
        *,
        connect_timeout: float = 300.0,
        buffer_bytes: int = 256 << 20,
        on_loss: str = "warn",
        drop_short_step: bool = False,
    ) -> Self:
        """Run this pipeline on the workers of a service; methods applied to the result run here.

        The arguments are described at `stoker.service.distribute`.

        Args:
            service: "grpc://host:port" or "host" (port 5050) of a dispatcher, (protocol, address),
                or a LocalCluster.
            processing_mode: a `ShardingPolicy`, or "distributed_epoch" (each element is yielded by
                one worker), "deterministic_epoch" (elements, order and states as without a service)
                or "parallel_epochs" (every worker yields the whole dataset). ``None``: without a
                `job_name`, "deterministic_epoch" if the position of every element is known and no
                method or function keeps a state; otherwise "distributed_epoch". A line of the log
                says why not.
            job_name: clients with the same name share a job.
            consumer_index: index of this consumer of a coordinated read.
            num_consumers: number of consumers of a coordinated read.
            max_outstanding_requests: most elements sent and not yet yielded.
            data_transfer_protocol: "local", "shm", "tcp" or "grpc".
            compression: codec of the elements.
            cross_trainer_cache: a `CrossTrainerCache`.
            target_workers: "AUTO", "ANY" or "LOCAL".
            connect_timeout: seconds to wait for the dispatcher.
            buffer_bytes: most bytes sent and not yet yielded.
            on_loss: "warn" or "raise".
            drop_short_step: in "deterministic_epoch", let all consumers end at the same step.

        Raises:
            InvalidArgumentError: if an argument is out of range.
            UnimplementedError: if a source cannot be split, which "distributed_epoch" requires, or
                positions are not known, which "deterministic_epoch" requires.
        """
        from stoker.service.api.default_mode import default_mode
        from stoker.service.api.distribution import distribute

        if processing_mode is None:
            processing_mode = default_mode(self.node, job_name)
        transformation = distribute(
            processing_mode,
            service,
            job_name,
            consumer_index,
            num_consumers,
            max_outstanding_requests=max_outstanding_requests,
            data_transfer_protocol=data_transfer_protocol,
            compression=compression,
            cross_trainer_cache=cross_trainer_cache,
            target_workers=target_workers,
            connect_timeout=connect_timeout,
            buffer_bytes=buffer_bytes,
            on_loss=on_loss,
            drop_short_step=drop_short_step,
        )
        return transformation(self)

    def with_options(self, options: Options) -> Self:
        """Return the dataset with `options` set.

        As `tf.data.Dataset.with_options`.

        Args:
            options: fields with their default value leave the dataset's value unchanged.

        Raises:
            InvalidTypeError: if `options` is not a `stoker.Options`.

        Example:
            >>> Dataset.range(3).with_options(Options(seed=7)).options().seed
            7
        """
        if not isinstance(options, Options):
            raise InvalidTypeError(f"`options` must be stoker.Options; got {options!r}")
        return type(self)(self.node, self._options.merge(options), _seed=self._seed)

    def _with_node(self, node: Node) -> Self:
        """Return a dataset of another tree with the options and the seed of this dataset."""
        return type(self)(node, self._options, _seed=self._seed)

    def _draw_seed(self, draw: Callable[[], int] | None = None) -> int:
        """Return the seed that is used if none was given, drawing the seed at the first call.

        Copies in forked processes have the drawn seed. `draw` replaces the system's random source.
        """
        return self._seed.get(draw)

    def _salts(self) -> list[int]:
        """Return `salts_of` the tree."""
        return salts_of(number(local_form(self._node).root))

    def _adopt_seeds(self, seed: int, salts: Sequence[int]) -> None:
        """Replace the seeds that were not given by the seeds of a state."""
        nodes = number(local_form(self._node).root)
        if (seed, list(salts)) != (self._seed.get(), salts_of(nodes)):
            forget_draws(number(self._node))
        self._seed.adopt(seed)
        adopt_salts(nodes, salts)

    def _seeds_of_job(self) -> DrawnSeeds:
        """Return the drawn seeds that the workers of a service use."""
        seed = self._seed.get() if self._seed.from_global else None
        return DrawnSeeds(seed, self._salts())

    def options(self) -> Options:
        """Return the options of the dataset; as `tf.data.Dataset.options`."""
        return self._options

    @property
    def element_spec(self) -> Spec:
        """Known or declared spec of the elements; as `tf.data.Dataset.element_spec`.

        Example:
            >>> Dataset.range(3).element_spec
            TensorSpec(shape=(), dtype=int64)
        """
        return self.node.element_spec()

    def cardinality(self) -> int:
        """Return the number of elements; as `tf.data.Dataset.cardinality`.

        Returns:
            A count, `stoker.INFINITE_CARDINALITY` (-1) or `stoker.UNKNOWN_CARDINALITY` (-2).

        Example:
            >>> Dataset.range(10).batch(4).cardinality()
            3
        """
        return self.node.cardinality()

    def explain(self) -> Explanation:
        """Return the stages of the pipeline, each with its line in your program, to be printed.

        After a pass, or during a pass, the text contains the times of the stages, and a sentence
        that says what limits the rate, measured by the last iterator that was made of this very
        object. No function of the dataset is called.

        Example:
            >>> dataset = Dataset.range(3).map(abs)
            >>> print(dataset.explain())  # doctest: +ELLIPSIS
            stage     line...  cardinality  element_spec
            range     ...  3            TensorSpec(shape=(), dtype=int64)
            map(abs)  ...  3            UnknownSpec()
            Not read yet: the times of the stages are known after a pass.
        """
        return Explanation(self.node, self._measurements)

    def __len__(self) -> int:
        cardinality = self.cardinality()
        if cardinality == UNKNOWN_CARDINALITY:
            cardinality = counted(self.node).cardinality()
        if cardinality == INFINITE_CARDINALITY:
            raise TypeError("the dataset is infinite and has no length; take(n) bounds it")
        if cardinality == UNKNOWN_CARDINALITY:
            raise TypeError("the length of the dataset is unknown until it is read")
        return cardinality

    def __getitems__(self, indices: Any) -> NoReturn:
        # PyTorch's loader takes an object of an unknown class for a map-style dataset, and calls
        # this method. With `__getitem__` NumPy would take a Dataset for a sequence.
        raise InvalidTypeError(
            "a stoker.Dataset is iterated, and has no elements by index; for the DataLoader of "
            "PyTorch wrap it in stoker.torch.IterableDataset(dataset), or use "
            "stoker.torch.DataLoader(dataset)"
        )

    @property
    def __array__(self) -> NoReturn:
        # Keras asks `x` of fit for an array, and would call a Dataset an "unrecognized data type".
        caller = sys._getframe(1).f_globals.get("__name__", "")
        if caller.startswith("keras."):
            raise InvalidTypeError(
                "a stoker.Dataset is no array; for fit, evaluate and predict of Keras give "
                "stoker.keras.adapt(dataset), or of samples adapt(dataset, batch_size=32)"
            )
        raise AttributeError("a stoker.Dataset is no array", name="__array__", obj=self)

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        kinds = ".".join(node.shown_kind() for node in number(self.node))
        return f"<Dataset {kinds} element_spec={self.element_spec!r}>"

    def _repr_html_(self) -> str:
        return outline(self.node)

    def __iter__(self) -> Iterator[T_co]:
        return self.iterator()

    def iterator(self, *, state: Any = None, epoch: int | None = None) -> Iterator[T_co]:
        """Start or resume an epoch.

        Args:
            state: from `Iterator.state_dict` of the same pipeline, in any process: the new
                iterator continues after the last element of the saved iterator. Earlier elements
                are skipped as cheaply as the pipeline allows (see docs/datasets.md). The dataset
                adopts the seed of the state, and continues with the epoch after the state's.
            epoch: number of the epoch, 0 or more; ``None``: the next of this dataset object.

        Raises:
            InvalidArgumentError: if `epoch` is negative, or `state` belongs to another pipeline,
                seed or version, or its position exceeds the length of the dataset.
            UnimplementedError: if a state is given and the dataset reads from a service, except in
                "deterministic_epoch" with the same number of consumers, or with nodes after
                `distribute` that allow another number.

        Example:
            >>> dataset = Dataset.range(100).shuffle(100, seed=1)
            >>> list(dataset.iterator(epoch=3)) == list(dataset.iterator(epoch=3))
            True
        """
        if state is not None:
            return self._resume(state, epoch)
        if epoch is not None:
            what = "an int of 0 or more, or None"
            epoch = arguments.integer("epoch", epoch, minimum=0, what=what)
            return self._iterate(epoch, explicit=True)
        with _lock:  # each thread that begins an epoch of this dataset has its own number
            epoch = self._epochs_started
            self._epochs_started += 1
        return self._iterate(epoch, explicit=False)

    def _resume(self, given: Any, epoch: int | None) -> Iterator:
        if epoch is not None:
            raise InvalidArgumentError(
                f"`epoch` and `state` exclude each other: the state has an epoch; got {epoch!r}"
            )
        local = local_form(self.node)
        state = parse_state(given, local.root, self._identity, self._options.seed)
        position, base = start_of(state, self.node, local)
        from stoker.dataset.stateful.functions import warn_if_stateful  # few programs resume

        warn_if_stateful(self.node)
        self._adopt_seeds(state.seed, state.salts)
        with _lock:
            self._epochs_started = state.epoch + 1
        return self._iterate(state.epoch, explicit=True, position=position, base=base)

    def _iterate(self, epoch: int, *, explicit: bool, position: int = 0, base: int = 0) -> Iterator:
        """Open an epoch and skip the elements before `position`; `base` as of a state."""
        seed, local = self._options.seed, local_form(self.node)
        numbers = number(local.root)
        context = Context(
            seed=self._seed.get() if seed is None else seed,
            seed_given=seed is not None,
            salts=salts_by_number(numbers, salts_of(numbers)),
            epoch=(epoch,),
            explicit_epoch=explicit,
            numbers=local.numbers,
            bases=bases_of(self.node, local, base),
            threads=self._options.threads,
            autotune_bytes=self._options.autotune_bytes,
            make_dataset=Dataset,
        )
        stream = open_stream(self.node, context)
        if position:
            # One state is for all consumers, of which some lack an element of the last step.
            _skip(stream, position, least=position - (local.consumers > 1))
            # Skipping is no reading: its times would hide what limits the rate of the elements.
            context.meters.recording.forget()
        self._measurements = measurements = Measurements(context.meters)
        return Iterator(
            stream, context.statistics, lambda: self._state(context, position, base), measurements
        )

    @cached_property
    def _identity(self) -> Identity:
        return identity_of(local_form(self.node).root)

    def _state(self, context: Context, position: int, base: int) -> IteratorState:
        local = local_form(self.node)
        check_resumable(local.root)
        consumers, base_of_all = consumers_of(self.node, local, base)
        return IteratorState(
            **self._identity._asdict(),
            seed=context.seed,
            salts=list(context.salts.values()),
            epoch=context.epoch[0],
            position=position,
            consumers=consumers,
            base=base_of_all,
        )

    def as_numpy_iterator(self) -> Iterator:
        """Start the next epoch; as `tf.data.Dataset.as_numpy_iterator`.

        Elements are NumPy and Python values already, so this is `iterator`.

        Example:
            >>> list(Dataset.range(3).as_numpy_iterator())
            [0, 1, 2]
        """
        return self.iterator()

    def __reduce__(self) -> tuple[Any, ...]:
        tree = encode_tree(self.node)
        # pickle imports the modules of these classes, which register the classes for `decode_tree`.
        kinds = tuple(dict.fromkeys(type(node) for node in number(self.node)))
        seeds = DrawnSeeds(self._seed.get(), self._salts()), self._seed.from_global
        started = self._epochs_started
        return _restore, (type(self), kinds, tree, self._options, *seeds, started, spawn_time())


def _skip(stream: Stream, position: int, least: int) -> None:
    try:
        skipped = stream.advance(position)
        if skipped < least:
            raise InvalidArgumentError(
                f"`state` is at position {position}, but the dataset has {skipped} elements; the "
                "source has changed since"
            )
    except BaseException:
        stream.close()
        raise


def _restore(
    cls: type[Dataset],
    _kinds: tuple[type[Node], ...],
    tree: bytes,
    options: Options,
    seeds: DrawnSeeds,
    from_global: bool,
    epochs_started: int,
    spawned_at: float | None,
) -> Dataset:
    seed = DrawnSeed(seeds.seed, from_global=from_global)
    dataset = cls(decode_tree(tree), options, _seed=seed)
    adopt_salts(number(local_form(dataset.node).root), seeds.salts)
    dataset._epochs_started = epochs_started
    note_unpickled(dataset.node, spawned_at)
    return dataset
