"""The fluent API: sources in memory, generators and lists of files."""

import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, overload

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.tree.call_site import call_site
from stoker.elements.spec import Spec
from stoker.errors import InvalidArgumentError, InvalidTypeError

if TYPE_CHECKING:
    import numpy as np

    import stoker

_U = TypeVar("_U")


class Sources(Fluent[T_co]):
    """Class methods that construct datasets."""

    @classmethod
    def range(cls, *args: int) -> "stoker.Dataset[int]":
        """Yield the ints of ``range(*args)``, as Python ints.

        As `tf.data.Dataset.range`.

        Args:
            *args: ``stop``, ``start, stop`` or ``start, stop, step``.

        Raises:
            InvalidArgumentError: if there are not 1 to 3 ints of 64 bits, or `step` is 0.

        Example:
            >>> list(Dataset.range(1, 10, 3))
            [1, 4, 7]
        """
        if not 1 <= len(args) <= 3:
            raise InvalidArgumentError(
                "range accepts stop, (start, stop) or (start, stop, step); got "
                f"{len(args)} arguments"
            )
        names = ("start", "stop", "step") if len(args) > 1 else ("stop",)
        given = {
            name: arguments.integer(name, value, what="an int of 64 bits")
            for name, value in zip(names, args, strict=False)
        }
        if given.get("step") == 0:
            raise InvalidArgumentError("`step` must not be 0; give 1 to count up, -1 to count down")
        values = {"start": 0, "step": 1, **given}
        # `len` of a range raises OverflowError beyond this number.
        if (values["stop"] - values["start"]) // values["step"] >= 2**63 - 1:
            raise InvalidArgumentError(f"range{args} has more elements than an int64 can count")
        return cls._source(nodes.Range(**values, site=call_site()))

    @classmethod
    def counter(cls, start: int = 0, step: int = 1) -> "stoker.Dataset[int]":
        """Yield the ints `start`, ``start + step``, ... without end.

        The elements are Python ints and continue beyond 64 bits. As `tf.data.Dataset.counter`.

        Args:
            start: the first int.
            step: difference between two ints.

        Raises:
            InvalidArgumentError: if an argument is not an int of 64 bits.

        Example:
            >>> list(Dataset.counter(start=2, step=5).take(3))
            [2, 7, 12]
        """
        first = arguments.integer("start", start, what="an int of 64 bits")
        between = arguments.integer("step", step, what="an int of 64 bits")
        return cls._source(nodes.Counter(start=first, step=between, site=call_site()))

    @classmethod
    def random(
        cls, seed: int | None = None, rerandomize_each_iteration: bool | None = None
    ) -> "stoker.Dataset[int]":
        """Yield random ints in ``[0, 2**32)`` without end.

        Each is a function of the seed and its position, so `skip` takes constant time. The numbers
        for a seed differ from TensorFlow's. As `tf.data.Dataset.random`.

        Args:
            seed: seed of the numbers; ``None``: the seed of the dataset (`Options.seed`).
            rerandomize_each_iteration: draw new numbers in each epoch; ``None`` is False.

        Raises:
            InvalidArgumentError: if `seed` is not an int of 64 bits, or
                `rerandomize_each_iteration` is not a bool.

        Example:
            >>> numbers = Dataset.random(seed=4).take(1000)
            >>> list(numbers) == list(numbers), all(0 <= x < 2**32 for x in numbers)
            (True, True)
        """
        anew = arguments.flag(
            "rerandomize_each_iteration", rerandomize_each_iteration, default=False
        )
        return cls._source(
            nodes.RandomNumbers(
                seed=arguments.seed(seed), rerandomize_each_iteration=anew, site=call_site()
            )
        )

    @classmethod
    def from_tensors(cls, tensors: Any) -> "stoker.Dataset[Any]":
        """Yield `tensors` as a single element.

        As `tf.data.Dataset.from_tensors`.

        Args:
            tensors: arrays, numbers, text, nested in tuples, dicts, namedtuples or dataclasses.
                Lists and ranges become arrays. Arrays are not copied; the element contains
                read-only views. Leaves may be datasets, too, for `flat_map` and `interleave`.

        Raises:
            InvalidArgumentError: if a leaf, named in the message, cannot be converted to an array.

        Example:
            >>> list(Dataset.from_tensors(([1, 2], "a")))
            [(array([1, 2]), 'a')]
        """
        from stoker.dataset.nodes.tensors import as_tensors

        value = Pickled.of(as_tensors(tensors))
        return cls._source(nodes.Tensors(value=value, site=call_site()))

    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[str]) -> "stoker.Dataset[str]": ...

    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[int]) -> "stoker.Dataset[np.int64]": ...

    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: list[float]) -> "stoker.Dataset[np.float64]": ...

    @overload
    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> "stoker.Dataset[Any]": ...

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> "stoker.Dataset[Any]":
        """Yield slices of `tensors` along the first dimension.

        As `tf.data.Dataset.from_tensor_slices`.

        Args:
            tensors: arrays of shape ``(count, ...)``, nested like elements. Lists and ranges become
                arrays; a list of datasets is cut into datasets. Arrays are not copied, and slices
                are read-only views; slices of a one-dimensional array are NumPy scalars, slices of
                text are str or bytes.

        Raises:
            InvalidArgumentError: if a leaf has no first dimension or the counts differ; the
                message names the leaves.

        Example:
            >>> list(Dataset.from_tensor_slices({"x": [[1, 0], [0, 1]], "y": ["a", "b"]}))
            [{'x': array([1, 0]), 'y': 'a'}, {'x': array([0, 1]), 'y': 'b'}]
        """
        from stoker.dataset.nodes.tensors import as_tensors, count_of

        value = as_tensors(tensors)
        return cls._source(
            nodes.TensorSlices(value=Pickled.of(value), count=count_of(value), site=call_site())
        )

    @classmethod
    def list_files(
        cls,
        file_pattern: str | os.PathLike[str] | Iterable[str | os.PathLike[str]],
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> "stoker.Dataset[str]":
        """Yield the paths that match a glob pattern, as str.

        A name that is not UTF-8 is yielded as returned by `os.fsdecode`, also by workers.
        As `tf.data.Dataset.list_files`.

        Files are listed by the process that reads, when reading begins: sorted, then shuffled.

        Args:
            file_pattern: a glob pattern, or several; ``**`` matches any depth, and paths with
                ``://`` are listed by fsspec.
            shuffle: shuffle the paths; ``None`` is True.
            seed: seed of the shuffle; each epoch has its own order.

        Raises:
            InvalidArgumentError: if a pattern is not a path, is empty, or there is none.
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
            raise InvalidTypeError(
                f"`file_pattern` must be a path or a list of paths; got {file_pattern!r}"
            ) from error
        if not patterns or not all(isinstance(pattern, str) and pattern for pattern in patterns):
            raise InvalidArgumentError(
                f"`file_pattern` must be one or more non-empty paths; got {file_pattern!r}"
            )
        return cls._source(
            nodes.ListFiles(
                patterns=patterns,
                shuffle=arguments.flag("shuffle", shuffle, default=True),
                seed=arguments.seed(seed),
                site=call_site(),
            )
        )

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[_U]],
        *,
        args: tuple[Any, ...] | list[Any] = (),
        output_signature: Spec | None = None,
    ) -> "stoker.Dataset[_U]":
        """Yield the elements of ``generator(*args)``.

        The generator is called once per epoch and cannot be split: use `range` or `list_files` and
        `map` if workers must share the work. As `tf.data.Dataset.from_generator`.

        Args:
            generator: returns an iterable of elements.
            args: its arguments.
            output_signature: spec of the elements, if known; elements are not checked.

        Raises:
            InvalidArgumentError: if `generator` is not callable, `args` is not a tuple, or
                `output_signature` is not a spec.

        Example:
            >>> list(Dataset.from_generator(lambda n: (x * x for x in range(n)), args=(3,)))
            [0, 1, 4]
        """
        if not isinstance(args, tuple | list):
            raise InvalidArgumentError(f"`args` must be a tuple of arguments; got {args!r}")
        return cls._source(
            nodes.Generator(
                function=arguments.function("generator", generator),
                args=Pickled.of(tuple(args)),
                spec=arguments.spec("output_signature", output_signature),
                site=call_site(),
            )
        )
