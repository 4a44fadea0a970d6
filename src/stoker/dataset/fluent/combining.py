"""The fluent API: combinations of several datasets, and shards of a dataset."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.tree.node import SHARD_HINT, Node
from stoker.elements.common_spec import common_spec
from stoker.elements.spec import TensorSpec, UnknownSpec
from stoker.elements.structure import children, flatten, is_leaf
from stoker.errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    import stoker

_A = TypeVar("_A")
_B = TypeVar("_B")
_C = TypeVar("_C")


class Combining(Fluent[T_co]):
    """Methods that combine several datasets or select a part of a dataset."""

    @classmethod
    def _on(cls, node: Node, datasets: list[Fluent[Any]]) -> Any:
        """Return a dataset with the seed of the first input and the options of all."""
        return datasets[0]._append(node, *datasets[1:])

    @overload
    @classmethod
    def zip(cls, first: Fluent[_A], second: Fluent[_B], /) -> "stoker.Dataset[tuple[_A, _B]]": ...

    @overload
    @classmethod
    def zip(
        cls, first: Fluent[_A], second: Fluent[_B], third: Fluent[_C], /
    ) -> "stoker.Dataset[tuple[_A, _B, _C]]": ...

    @overload
    @classmethod
    def zip(cls, *args: Any, datasets: Any = None) -> "stoker.Dataset[Any]": ...

    @classmethod
    def zip(cls, *args: Any, datasets: Any = None) -> "stoker.Dataset[Any]":
        """Combine the k-th elements of all datasets into one element.

        The result ends with the shortest dataset. If an element of a dataset fails, the error
        occupies the position and all datasets skip their element, so that all stay aligned. As
        `tf.data.Dataset.zip`.

        Args:
            *args: datasets, or a nest of datasets in tuples, dicts, namedtuples or dataclasses;
                elements have the same structure.
            datasets: the nest, by name.

        Raises:
            InvalidArgumentError: if there is no dataset, or the nest contains a list or a value
                that is not a Dataset.

        Example:
            >>> a, b = Dataset.range(3), Dataset.range(10, 14)
            >>> list(Dataset.zip(a, b))
            [(0, 10), (1, 11), (2, 12)]
            >>> list(Dataset.zip({"a": a, "pair": (a, b)}).take(1))
            [{'a': 0, 'pair': (0, 10)}]
        """
        if bool(args) == (datasets is not None):
            raise InvalidTypeError(
                "zip accepts datasets, or one nest of them as `datasets`; got "
                + ("both" if args else "none")
            )
        nest = datasets
        if args:
            nest = args[0] if len(args) == 1 else args
        _check_nest(nest)
        found: list[Fluent[Any]] = flatten(nest)
        if not found:
            raise InvalidArgumentError(f"zip needs at least one dataset; got {nest!r}")
        parts = tuple(dataset.node for dataset in found)
        return cls._on(nodes.Zip(parts=parts, **nodes.Zip.nesting_of(nest)), found)

    def concatenate(self, dataset: Fluent[Any]) -> Self:
        """Yield the elements of this dataset, then the elements of another dataset.

        As `tf.data.Dataset.concatenate`.

        Args:
            dataset: the second dataset; its elements have the same structure and dtypes.

        Raises:
            InvalidArgumentError: if `dataset` is not a Dataset, or its elements differ in
                structure or dtype.

        Example:
            >>> list(Dataset.range(2).concatenate(Dataset.range(5, 7)))
            [0, 1, 5, 6]
        """
        parts: list[Node] = []
        for each in (self, _dataset("dataset", dataset)):
            # A single node for a whole chain keeps the depth of the tree constant.
            node = each.node
            parts += node.parts if isinstance(node, nodes.Concatenate) else [node]
        try:
            common_spec(self.node.element_spec(), dataset.node.element_spec())
        # tf.data raises a TypeError here.
        except InvalidArgumentError as error:
            raise InvalidTypeError(
                f"only datasets with elements of one structure can be concatenated: {error}; map "
                "the elements of one dataset to the structure of the other"
            ) from error
        return self._append(nodes.Concatenate(parts=tuple(parts)), dataset)

    def enumerate(self, start: int = 0) -> "stoker.Dataset[tuple[int, T_co]]":
        """Pair each element with its position.

        As `tf.data.Dataset.enumerate`.

        Args:
            start: the first position. Positions whose element fails are counted.

        Raises:
            InvalidArgumentError: if `start` is not an int of 64 bits.

        Example:
            >>> list(Dataset.from_tensor_slices(["a", "b"]).enumerate(start=5))
            [(5, 'a'), (6, 'b')]
        """
        first = arguments.integer("start", start, what="an int of 64 bits")
        return self._append(nodes.Enumerate(input=self.node, start=first))

    def shard(self, num_shards: int, index: int) -> Self:
        """Keep every `num_shards`-th element, starting with element `index`.

        Elements of all other shards are skipped as cheaply as the input allows: a preceding map
        calls its function for this shard only. As `tf.data.Dataset.shard`.

        Args:
            num_shards: number of shards, at least 1; or `stoker.SHARD_HINT`, which the service
                replaces under `ShardingPolicy.HINT`, together with `index`.
            index: number of this shard, from 0 to ``num_shards - 1``.

        Raises:
            InvalidArgumentError: if `num_shards` is less than 1 or `index` is out of range.
            FailedPreconditionError: when read, if SHARD_HINT was not replaced.

        Example:
            >>> list(Dataset.range(10).shard(num_shards=3, index=1))
            [1, 4, 7]
        """
        index = arguments.integer("index", index, what="an int, the number of a shard")
        if num_shards != SHARD_HINT:
            num_shards = arguments.size("num_shards", num_shards)
            if not 0 <= index < num_shards:
                raise InvalidArgumentError(
                    f"Index must be between 0 and {num_shards - 1} (currently index = {index}). "
                    "`index` of `shard` is the number of a shard"
                )
        return self._append(nodes.Shard(input=self.node, num_shards=num_shards, index=index))

    @classmethod
    def sample_from_datasets(
        cls,
        datasets: Sequence[Fluent[_A]],
        weights: Any = None,
        seed: int | None = None,
        stop_on_empty_dataset: bool = False,
        rerandomize_each_iteration: bool | None = None,
    ) -> "stoker.Dataset[_A]":
        """Take each element from a dataset drawn at random.

        As `tf.data.Dataset.sample_from_datasets`.

        Args:
            datasets: the datasets; their elements have the same structure and dtypes.
            weights: relative frequency of each dataset, 0 or more; a dataset of weight 0 is never
                read. ``None``: equal frequencies. Or a dataset that yields the weights for each
                draw; the sampling ends with this dataset.
            seed: seed of the draws; ``None``: the seed of the dataset (`Options.seed`).
            stop_on_empty_dataset: end when a dataset that has ended is drawn; otherwise continue
                with the remaining datasets.
            rerandomize_each_iteration: draw anew in each epoch; ``None`` is False.

        Raises:
            InvalidArgumentError: if `datasets` is empty or their elements differ in structure or
                dtype, a weight is negative or all are 0, or another argument has the wrong type.

        Example:
            >>> a, b = Dataset.range(4), Dataset.range(100, 104)
            >>> sampled = Dataset.sample_from_datasets([a, b], weights=[0.5, 0.5], seed=1)
            >>> sorted(sampled)
            [0, 1, 2, 3, 100, 101, 102, 103]
        """
        found = _compatible("datasets", datasets)
        settings: dict[str, Any] = {
            "stop_on_empty_dataset": arguments.flag("stop_on_empty_dataset", stop_on_empty_dataset),
            "seed": arguments.seed(seed),
            "rerandomize_each_iteration": arguments.flag(
                "rerandomize_each_iteration", rerandomize_each_iteration, default=False
            ),
        }
        parts = tuple(dataset.node for dataset in found)
        if isinstance(weights, Fluent):
            node: Node = nodes.SampleByWeights(weights=weights.node, parts=parts, **settings)
            return cls._on(node, [*found, weights])
        given = [1.0] * len(parts) if weights is None else weights
        checked = arguments.weights(given, len(parts)).tolist()
        # A dataset of weight 0 is never opened.
        drawn = [(part, weight) for part, weight in zip(parts, checked, strict=True) if weight]
        node = nodes.Sample(
            parts=tuple(part for part, _ in drawn), weights=tuple(x for _, x in drawn), **settings
        )
        return cls._on(node, found)

    @classmethod
    def choose_from_datasets(
        cls,
        datasets: Sequence[Fluent[_A]],
        choice_dataset: Fluent[Any],
        stop_on_empty_dataset: bool = True,
    ) -> "stoker.Dataset[_A]":
        """Take each element from the dataset that `choice_dataset` selects.

        As `tf.data.Dataset.choose_from_datasets`.

        Args:
            datasets: the datasets; their elements have the same structure and dtypes.
            choice_dataset: yields indices into `datasets`; the result ends with the indices. An
                index out of range is an error at its position. Under a service every worker reads
                all indices.
            stop_on_empty_dataset: end when a dataset that has ended is chosen; otherwise such
                choices are skipped.

        Raises:
            InvalidArgumentError: if `datasets` is empty or their elements differ in structure or
                dtype, or the elements of `choice_dataset` are not scalar ints.

        Example:
            >>> words = [Dataset.from_tensors(word).repeat() for word in ("ham", "eggs")]
            >>> list(Dataset.choose_from_datasets(words, Dataset.range(2).repeat(2)))
            ['ham', 'eggs', 'ham', 'eggs']
        """
        found = _compatible("datasets", datasets)
        choices = _dataset("choice_dataset", choice_dataset)
        spec = choices.node.element_spec()
        index = isinstance(spec, TensorSpec) and spec.shape == () and spec.dtype.kind in "iu"
        if not index and not isinstance(spec, UnknownSpec):
            raise InvalidTypeError(
                f"the elements of `choice_dataset` must be ints, indices of `datasets`; got {spec}"
            )
        node = nodes.Choose(
            choices=choices.node,
            parts=tuple(dataset.node for dataset in found),
            stop_on_empty_dataset=arguments.flag("stop_on_empty_dataset", stop_on_empty_dataset),
        )
        return cls._on(node, [*found, choices])

    def rejection_resample(
        self,
        class_func: Callable[..., Any],
        target_dist: Any,
        initial_dist: Any = None,
        seed: int | None = None,
    ) -> "stoker.Dataset[tuple[Any, T_co]]":
        """Drop elements so that classes occur with given frequencies.

        Elements become pairs ``(class, element)``. No element is repeated. As
        `tf.data.Dataset.rejection_resample`.

        Args:
            class_func: called with the element, or with the members of a tuple; returns the
                element's class, an int from 0 to ``len(target_dist) - 1``.
            target_dist: relative frequency of each class in the result, 0 or more.
            initial_dist: relative frequency of each class in the input; ``None``: estimated from
                the elements read.
            seed: seed of the draws; ``None``: the seed of the dataset (`Options.seed`). Each
                epoch draws anew.

        Raises:
            InvalidArgumentError: if a frequency is negative, all are 0, or the two distributions
                differ in length; when read, if `class_func` returns an int out of range.

        Example:
            >>> numbers = Dataset.range(1000).map(lambda x: 0 if x % 10 else 1)
            >>> even = numbers.rejection_resample(lambda x: x, [0.5, 0.5], [0.9, 0.1], seed=1)
            >>> classes = [c for c, _ in even]
            >>> 0.4 < sum(classes) / len(classes) < 0.6
            True
        """
        target = _distribution("target_dist", target_dist, None)
        initial = None
        if initial_dist is not None:
            initial = _distribution("initial_dist", initial_dist, len(target))
        node = nodes.RejectionResample(
            input=self.node,
            function=arguments.function("class_func", class_func),
            target_dist=target,
            initial_dist=initial,
            seed=arguments.seed(seed),
        )
        return self._append(node)


def _dataset(name: str, value: Any) -> Fluent[Any]:
    if not isinstance(value, Fluent):
        raise InvalidTypeError(f"`{name}` must be a Dataset; got {value!r}")
    return value


def _check_nest(value: Any) -> None:
    # A list is no structure in tf.data, where it becomes a tensor.
    if isinstance(value, list):
        raise InvalidTypeError(
            f"zip accepts nests of datasets in tuples and dicts, not lists; got the list {value!r}"
        )
    if is_leaf(value):
        if not isinstance(value, Fluent):
            raise InvalidTypeError(f"zip accepts nests of datasets; got {value!r} in a nest")
        return
    for _, member in children(value):
        _check_nest(member)


def _compatible(name: str, values: Any) -> list[Fluent[Any]]:
    """Return the datasets, after checking that their elements have the same structure."""
    if not isinstance(values, list | tuple) or not values:
        raise InvalidArgumentError(
            f"`{name}` must be a list of datasets, not empty; got {values!r}"
        )
    datasets = [_dataset(f"{name}[{i}]", value) for i, value in enumerate(values)]
    spec = datasets[0].node.element_spec()
    for i, dataset in enumerate(datasets):
        try:
            spec = common_spec(spec, dataset.node.element_spec())
        except InvalidArgumentError as error:
            raise InvalidTypeError(
                f"the datasets of `{name}` must have elements of one structure, but those of "
                f"{name}[{i}] differ from those before: {error}"
            ) from error
    return datasets


def _distribution(name: str, value: Any, count: int | None) -> tuple[float, ...]:
    with suppress(InvalidArgumentError, TypeError):
        size = len(value) if count is None else count
        if size:
            return tuple(arguments.weights(value, size).tolist())
    what = "numbers" if count is None else f"{count} numbers, the length of `target_dist`,"
    raise InvalidArgumentError(
        f"`{name}` must be {what} of 0 or more, one of them positive, one for each class; "
        f"got {value!r}"
    )
