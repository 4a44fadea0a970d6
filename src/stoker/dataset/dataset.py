"""The fluent API: each method of `Dataset` builds a node."""

import os
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from stoker.dataset import arguments, nodes
from stoker.dataset.execute import Context, open_stream
from stoker.dataset.iterator import Iterator
from stoker.dataset.node import (
    INFINITE_CARDINALITY,
    UNKNOWN_CARDINALITY,
    Node,
    call_site,
    decode_tree,
    encode_tree,
    number,
)
from stoker.dataset.nodes.tensors import as_tensors, count_of
from stoker.dataset.opaque import Opaque
from stoker.dataset.options import Options
from stoker.dataset.spec import Spec
from stoker.errors import InvalidArgumentError, UnimplementedError

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


class Dataset:
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
        self._node = node
        self._options = options or Options()
        self._seed = _seed or _DrawnSeed()
        self._passes = 0

    @property
    def node(self) -> Node:
        """The tree, as it is executed and sent."""
        return self._node

    def _derive(self, node: Node) -> "Dataset":
        return Dataset(node, self._options, _seed=self._seed)

    @classmethod
    def range(cls, *args: int) -> "Dataset":
        """The ints of ``range(*args)``, as Python ints; as tf.data.Dataset.range.

        Args:
            *args: ``stop``, ``start, stop`` or ``start, stop, step``.

        Raises:
            InvalidArgumentError: not one to three ints of 64 bits, or a step of 0.

        Example:
            >>> list(Dataset.range(1, 10, 3))
            [1, 4, 7]
        """
        if not 1 <= len(args) <= 3:
            raise InvalidArgumentError(
                f"range takes stop, (start, stop) or (start, stop, step); got {len(args)} arguments"
            )
        names = ("start", "stop", "step") if len(args) > 1 else ("stop",)
        given = {
            name: arguments.integer(name, value, what="an int of 64 bits")
            for name, value in zip(names, args, strict=False)
        }
        if given.get("step") == 0:
            raise InvalidArgumentError("`step` must not be 0; give 1 to count up, -1 to count down")
        values = {"start": 0, "step": 1, **given}
        if (values["stop"] - values["start"]) // values["step"] >= 2**63 - 1:
            raise InvalidArgumentError(f"range{args} has more elements than an int64 can count")
        return cls(nodes.Range(**values, site=call_site()))

    @classmethod
    def from_tensors(cls, tensors: Any) -> "Dataset":
        """One element: `tensors` as a whole; as tf.data.Dataset.from_tensors.

        Args:
            tensors: arrays, numbers, text, nested in tuples, dicts, namedtuples or dataclasses.
                Lists become arrays. Arrays are not copied, and handed out read-only.

        Raises:
            InvalidArgumentError: a leaf has no form as an array; names it.

        Example:
            >>> list(Dataset.from_tensors(([1, 2], "a")))
            [(array([1, 2]), 'a')]
        """
        value = Opaque.of(as_tensors(tensors))
        return cls(nodes.Tensors(value=value, site=call_site()))

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> "Dataset":
        """Slices along the first dimension; as tf.data.Dataset.from_tensor_slices.

        Args:
            tensors: arrays of shape ``(count, ...)``, nested as elements are. Lists become arrays.
                Arrays are not copied, and slices are read-only views; of a one-dimensional array
                they are NumPy scalars, of text str or bytes.

        Raises:
            InvalidArgumentError: a leaf cannot be sliced or the counts differ; names them.

        Example:
            >>> list(Dataset.from_tensor_slices({"x": [[1, 0], [0, 1]], "y": ["a", "b"]}))
            [{'x': array([1, 0]), 'y': 'a'}, {'x': array([0, 1]), 'y': 'b'}]
        """
        value = as_tensors(tensors)
        return cls(
            nodes.TensorSlices(value=Opaque.of(value), count=count_of(value), site=call_site())
        )

    @classmethod
    def list_files(
        cls,
        file_pattern: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> "Dataset":
        """The paths that match, as str; as tf.data.Dataset.list_files.

        Files are listed where they are read, when reading begins: sorted, then shuffled.

        Args:
            file_pattern: a glob pattern, or several; ``**`` matches any depth, and paths with
                ``://`` are listed by fsspec.
            shuffle: whether to shuffle; ``None`` is True.
            seed: of the shuffle; each pass has its own order.

        Raises:
            InvalidArgumentError: a pattern is no path.
            NotFoundError: when read, if nothing matches.

        Example:
            >>> import tempfile
            >>> from pathlib import Path
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Path(folder, "a.txt").touch()
            ...     [Path(path).name for path in Dataset.list_files(f"{folder}/*.txt")]
            ['a.txt']
        """
        single = isinstance(file_pattern, str | os.PathLike)
        given: Any = [file_pattern] if single else file_pattern
        try:
            patterns: tuple[Any, ...] = tuple(os.fspath(pattern) for pattern in given)
        except TypeError as error:
            raise InvalidArgumentError(
                f"`file_pattern` must be a path or a list of paths; got {file_pattern!r}"
            ) from error
        if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise InvalidArgumentError(
                f"`file_pattern` must name at least one path, none empty; got {file_pattern!r}"
            )
        return cls(
            nodes.ListFiles(
                patterns=patterns,
                shuffle=True if shuffle is None else arguments.flag("shuffle", shuffle),
                seed=arguments.seed(seed),
                site=call_site(),
            )
        )

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        *,
        args: tuple[Any, ...] | list[Any] = (),
        output_signature: Spec | None = None,
    ) -> "Dataset":
        """What ``generator(*args)`` yields; as tf.data.Dataset.from_generator.

        It is called anew for each pass. A generator cannot be split: use `range` or `list_files`
        and `map` where workers shall share the work.

        Args:
            generator: returns an iterable of elements.
            args: its arguments.
            output_signature: the elements' spec, if known; elements are not checked against it.

        Raises:
            InvalidArgumentError: `generator` cannot be called, or the signature is no spec.

        Example:
            >>> list(Dataset.from_generator(lambda n: (x * x for x in range(n)), args=(3,)))
            [0, 1, 4]
        """
        if not isinstance(args, tuple | list):
            raise InvalidArgumentError(f"`args` must be a tuple of arguments; got {args!r}")
        return cls(
            nodes.Generator(
                function=arguments.function("generator", generator),
                args=Opaque.of(tuple(args)),
                spec=arguments.spec("output_signature", output_signature),
                site=call_site(),
            )
        )

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "Dataset":
        """Each element becomes what the function returns; as tf.data.Dataset.map.

        Results are not converted and come in the order of the input. A function that raises takes
        its element's position: the error is raised there and reading may continue behind it.

        Args:
            map_func: called with the element, or with its members if it is a tuple.
            num_parallel_calls: ``None`` calls in the reading thread; a number or
                `stoker.AUTOTUNE` on that many threads of the process's pool.
            element_spec: of the results, if known; user code is never run to guess it.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(3).map(lambda x: {"x": x}))
            [{'x': 0}, {'x': 1}, {'x': 2}]
        """
        calls = num_parallel_calls
        if calls is not None:
            calls = arguments.size_or_autotune("num_parallel_calls", calls)
        return self._derive(
            nodes.Map(
                input=self.node,
                function=arguments.function("map_func", map_func),
                num_parallel_calls=calls,
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )

    def filter(self, predicate: Callable[..., Any]) -> "Dataset":
        """The elements for which the predicate is true; as tf.data.Dataset.filter.

        Args:
            predicate: called with the element, or with its members if it is a tuple.

        Raises:
            InvalidArgumentError: `predicate` cannot be called.

        Example:
            >>> list(Dataset.range(5).filter(lambda x: x > 2))
            [3, 4]
        """
        function = arguments.function("predicate", predicate)
        return self._derive(nodes.Filter(input=self.node, function=function, site=call_site()))

    def flat_map(
        self, map_func: Callable[..., "Dataset"], *, element_spec: Spec | None = None
    ) -> "Dataset":
        """The elements of a dataset made for each element; as tf.data.Dataset.flat_map.

        Args:
            map_func: called with the element, or with its members if it is a tuple; returns a
                Dataset.
            element_spec: of the results, if known.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the function
                returns something else.

        Example:
            >>> list(Dataset.range(4).flat_map(Dataset.range))
            [0, 0, 1, 0, 1, 2]
        """
        return self._derive(
            nodes.FlatMap(
                input=self.node,
                function=arguments.function("map_func", map_func),
                spec=arguments.spec("element_spec", element_spec),
                site=call_site(),
            )
        )

    def batch(self, batch_size: int, drop_remainder: bool = False) -> "Dataset":
        """Runs of consecutive elements, stacked leaf by leaf; as tf.data.Dataset.batch.

        Python ints become int64, floats float64, bools bool; text becomes an object array.

        Args:
            batch_size: elements per batch.
            drop_remainder: whether to drop a last batch with fewer.

        Raises:
            InvalidArgumentError: an argument is none of these; when read, if the elements of a
                batch differ in structure, shape or dtype.

        Example:
            >>> list(Dataset.range(5).batch(2))
            [array([0, 1]), array([2, 3]), array([4])]
        """
        return self._derive(
            nodes.Batch(
                input=self.node,
                batch_size=arguments.size("batch_size", batch_size),
                drop_remainder=arguments.flag("drop_remainder", drop_remainder),
                site=call_site(),
            )
        )

    def shuffle(
        self,
        buffer_size: int,
        seed: int | None = None,
        reshuffle_each_iteration: bool | None = None,
    ) -> "Dataset":
        """Elements in random order, drawn from a buffer; as tf.data.Dataset.shuffle.

        Args:
            buffer_size: elements in the buffer; the order is uniform if all fit.
            seed: of the draws; ``None``: the dataset's own (`Options.seed`).
            reshuffle_each_iteration: whether each pass has an order of its own; ``None`` is True.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> sorted(Dataset.range(5).shuffle(3, seed=1))
            [0, 1, 2, 3, 4]
        """
        reshuffle = True if reshuffle_each_iteration is None else reshuffle_each_iteration
        return self._derive(
            nodes.Shuffle(
                input=self.node,
                buffer_size=arguments.size("buffer_size", buffer_size),
                seed=arguments.seed(seed),
                reshuffle_each_iteration=arguments.flag("reshuffle_each_iteration", reshuffle),
                site=call_site(),
            )
        )

    def repeat(self, count: int | None = None) -> "Dataset":
        """The dataset again and again; as tf.data.Dataset.repeat.

        Each time is a pass of its own: a shuffle before it draws anew.

        Args:
            count: how often; ``None`` or -1 without end, unless a pass is empty.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(2).repeat(3))
            [0, 1, 0, 1, 0, 1]
        """
        times = -1 if count is None else arguments.count("count", count, "endless")
        return self._derive(nodes.Repeat(input=self.node, count=times, site=call_site()))

    def take(self, count: int) -> "Dataset":
        """The first elements; as tf.data.Dataset.take.

        Args:
            count: how many; -1 for all. An element whose function raised counts.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(10).take(2))
            [0, 1]
        """
        taken = arguments.count("count", count, "all")
        return self._derive(nodes.Take(input=self.node, count=taken, site=call_site()))

    def skip(self, count: int) -> "Dataset":
        """All but the first elements; as tf.data.Dataset.skip.

        What is skipped is computed only where that is needed to know what follows.

        Args:
            count: how many to leave out; -1 for all.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(5).skip(3))
            [3, 4]
        """
        skipped = arguments.count("count", count, "all")
        return self._derive(nodes.Skip(input=self.node, count=skipped, site=call_site()))

    def cache(self) -> "Dataset":
        """Keeps the elements in memory from the first whole pass on; as tf.data.Dataset.cache.

        Later passes in this process read what was kept, as read-only arrays. A pass that was left
        early keeps nothing.

        Example:
            >>> dataset = Dataset.range(3).map(lambda x: x + 1).cache()
            >>> list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
        """
        return self._derive(nodes.Cache(input=self.node, site=call_site()))

    def prefetch(self, buffer_size: int) -> "Dataset":
        """Computes ahead of the reader on a thread; as tf.data.Dataset.prefetch.

        Args:
            buffer_size: the most elements to hold, or `stoker.AUTOTUNE`.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> list(Dataset.range(3).prefetch(2))
            [0, 1, 2]
        """
        size = arguments.size_or_autotune("buffer_size", buffer_size)
        return self._derive(nodes.Prefetch(input=self.node, buffer_size=size, site=call_site()))

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

    def with_options(self, options: Options) -> "Dataset":
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
        return Dataset(self.node, self._options.merge(options), _seed=self._seed)

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
        """Begins a pass.

        Args:
            state: of an iterator to continue; not implemented yet.
            epoch: which pass this is; ``None``: this dataset object's next.

        Raises:
            InvalidArgumentError: `epoch` is negative.
            UnimplementedError: a state is given.

        Example:
            >>> dataset = Dataset.range(100).shuffle(100, seed=1)
            >>> list(dataset.iterator(epoch=3)) == list(dataset.iterator(epoch=3))
            True
        """
        if state is not None:
            raise UnimplementedError(
                "continuing from a state is not implemented; use skip(n) behind a seeded pipeline"
            )
        explicit = epoch is not None
        if explicit:
            which = arguments.integer("epoch", epoch, minimum=0, what="0 or more, or None")
        else:
            with _passes_lock:
                which = self._passes
                self._passes += 1
        seed = self._options.seed
        context = Context(
            seed=self._seed.get() if seed is None else seed,
            epoch=(which,),
            explicit_epoch=explicit,
            threads=self._options.threads,
        )
        return Iterator(open_stream(self.node, context), context.statistics)

    def as_numpy_iterator(self) -> Iterator:
        """Begins a pass; as tf.data.Dataset.as_numpy_iterator.

        Elements are NumPy and Python values already, so this is `iterator`.

        Example:
            >>> list(Dataset.range(3).as_numpy_iterator())
            [0, 1, 2]
        """
        return self.iterator()

    def __reduce__(self) -> tuple[Any, ...]:
        return _restore, (encode_tree(self.node), self._options, self._seed.get(), self._passes)


def _restore(tree: bytes, options: Options, seed: int, passes: int) -> Dataset:
    dataset = Dataset(decode_tree(tree), options, _seed=_DrawnSeed(seed))
    dataset._passes = passes
    return dataset
