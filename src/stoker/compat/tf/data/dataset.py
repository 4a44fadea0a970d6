"""tf.data.Dataset: `stoker.Dataset` with TensorFlow's arguments and TensorFlow's text."""

import os
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, Self

import msgspec
import numpy as np
import numpy.typing as npt

from stoker.compat.tf import random
from stoker.compat.tf.data import generator as generators
from stoker.compat.tf.data.options import Options
from stoker.compat.tf.data.tolerance import tolerant
from stoker.compat.tf.data.values import as_constants, as_numpy
from stoker.compat.tf.dtypes import as_dtype
from stoker.dataset import nodes
from stoker.dataset.closing import Closing
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import Iterator
from stoker.dataset.options import Options as StokerOptions
from stoker.dataset.tree.node import Node
from stoker.elements.spec import Spec, TensorSpec
from stoker.elements.structure import map_structure
from stoker.errors import InvalidTypeError, UnimplementedError


class NumpyIterator(Closing):
    """An epoch of a dataset as NumPy values; constructed by `Dataset.as_numpy_iterator`.

    All further attributes are attributes of `stoker.Iterator`.

    Example:
        >>> from stoker.compat import tf
        >>> iterator = tf.data.Dataset.range(3).as_numpy_iterator()
        >>> next(iterator).item(), iterator.stats()["elements"]
        (0, 1)
    """

    def __init__(self, iterator: Iterator) -> None:
        self._iterator = iterator

    def __iter__(self) -> "NumpyIterator":
        return self

    def __next__(self) -> Any:
        return as_numpy(next(self._iterator))

    def next(self) -> Any:
        """Return the next element; as ``next(iterator)``."""
        return next(self)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def close(self) -> None:
        """Close the iterator."""
        self._iterator.close()


@tolerant
class Dataset(StokerDataset):
    """A pipeline with the methods and arguments of `tf.data.Dataset`.

    Differs from `stoker.Dataset` as TensorFlow's does: text is bytes, Python's numbers in
    `from_tensors` and `from_tensor_slices` are int32 and float32, `as_numpy_iterator` yields NumPy
    scalars, and arguments without a meaning here (``name=``, ``deterministic=``) are ignored.
    Iterating yields NumPy and Python values, not tensors: values have no ``.numpy()``.

    Example:
        >>> from stoker.compat import tf
        >>> dataset = tf.data.Dataset.from_tensor_slices(["a", "b"], name="letters")
        >>> list(dataset.as_numpy_iterator())
        [b'a', b'b']
    """

    @classmethod
    def of(cls, dataset: StokerDataset) -> "Dataset":
        """Return a `stoker.Dataset` with TensorFlow's methods and the same seed and options.

        Raises:
            InvalidTypeError: if the value is not a dataset.

        Example:
            >>> import stoker
            >>> from stoker.compat import tf
            >>> list(tf.data.Dataset.of(stoker.Dataset.range(2)).as_numpy_iterator())
            [0, 1]
        """
        if isinstance(dataset, cls):
            return dataset
        if not isinstance(dataset, StokerDataset):
            raise InvalidTypeError(
                f"Invalid `dataset`. Expected a `tf.data.Dataset` object but got {type(dataset)}."
            )
        return cls(dataset.node, dataset.options(), _seed=dataset._seed)

    @classmethod
    def _source(cls, node: Node) -> Self:
        return cls(_salted(node), _seed=random.drawn_seed())

    def _derive(self, node: Node, *others: Fluent) -> Self:
        derived = super()._derive(salted := _salted(node), *others)
        if salted is not node and not derived._seed.from_global:
            derived._seed = random.drawn_seed() or derived._seed
        return derived

    @classmethod
    def range(cls, *args: int, output_type: npt.DTypeLike = np.int64, **_ignored: Any) -> "Dataset":
        """Yield ints, of `output_type` if given; as `tf.data.Dataset.range`.

        As there, further keywords are ignored.
        """
        return cls.of(super().range(*args))._cast(output_type)

    @classmethod
    def counter(cls, start: int = 0, step: int = 1, dtype: npt.DTypeLike = np.int64) -> "Dataset":
        """Yield ints without end, of `dtype` if given; as `tf.data.Dataset.counter`."""
        return cls.of(super().counter(start, step))._cast(dtype)

    def _cast(self, dtype: npt.DTypeLike) -> "Dataset":
        resolved = as_dtype(dtype)
        if resolved == np.int64:  # Python's ints need no map, which would cost a call each
            return self
        if resolved.kind not in "biufcV":  # bfloat16 is of kind V
            raise InvalidTypeError(f"the dtype of a range must be numeric; got {resolved}")
        return self.of(super().map(resolved.type, element_spec=TensorSpec((), resolved)))

    @classmethod
    def from_tensors(cls, tensors: Any) -> "Dataset":
        """Yield a single element; text is bytes, Python's numbers int32 and float32."""
        return cls.of(super().from_tensors(as_constants(tensors)))

    @classmethod
    def from_tensor_slices(cls, tensors: Any) -> "Dataset":
        """Yield slices; text is bytes, Python's numbers int32 and float32."""
        return cls.of(super().from_tensor_slices(as_constants(tensors)))

    @classmethod
    def list_files(
        cls,
        file_pattern: Any,
        shuffle: bool | None = None,
        seed: int | None = None,
    ) -> "Dataset":
        """Yield the paths that match, as bytes; as `tf.data.Dataset.list_files`."""
        single = isinstance(file_pattern, str | bytes | os.PathLike)
        try:
            patterns = [os.fsdecode(p) for p in ([file_pattern] if single else file_pattern)]
        except TypeError as error:
            raise InvalidTypeError(
                f"`file_pattern` must be a path or a list of paths; got {file_pattern!r}"
            ) from error
        paths = cls.of(super().list_files(patterns, shuffle=shuffle, seed=seed))
        return paths._derive(nodes.EncodedNames(input=paths.node, site=paths.node.site))

    @classmethod
    def from_generator(
        cls,
        generator: Callable[..., Iterable[Any]],
        output_types: Any = None,
        output_shapes: Any = None,
        args: tuple[Any, ...] | list[Any] | None = None,
        output_signature: Spec | None = None,
    ) -> "Dataset":
        """Yield the elements of a generator, in the declared dtypes.

        As `tf.data.Dataset.from_generator`.

        Args:
            generator: returns an iterable of elements.
            output_types: deprecated: dtypes of the elements.
            output_shapes: deprecated: their shapes, with `output_types`.
            args: the generator's arguments.
            output_signature: spec of the elements. Without `output_signature` and `output_types`,
                values are not converted.

        Raises:
            InvalidTypeError: if both declarations are given, `output_shapes` without
                `output_types`, or a declaration contains a list or is no dtype.
            InvalidArgumentError: when read, if a value has another shape or structure.
        """
        if output_signature is not None and (output_types, output_shapes) != (None, None):
            raise InvalidTypeError(
                "`output_types` and `output_shapes` can not be used together with "
                "`output_signature`; give `output_signature` alone"
            )
        if output_types is None and output_shapes is not None:
            raise InvalidTypeError("`output_shapes` needs `output_types`; or give a signature")
        arguments = () if args is None else tuple(args)
        generators.check_no_list("output_signature", output_signature)
        if output_types is not None:
            generators.check_no_list("output_types", output_types)
            output_signature = generators.signature_of(output_types, output_shapes)
        if output_signature is None or not callable(generator):
            return cls.of(super().from_generator(generator, args=arguments))
        conforming = generators.Conforming(generator, output_signature)
        declared = generators.declared(output_signature)
        return cls.of(super().from_generator(conforming, args=arguments, output_signature=declared))

    def map(
        self,
        map_func: Callable[..., Any],
        num_parallel_calls: int | None = None,
        deterministic: bool | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "Dataset":
        """Apply a function to each element; a returned list becomes a tuple.

        As `tf.data.Dataset.map`.
        """
        function: Any = map_func
        if callable(function):  # otherwise the method raises
            function = partial(_call, function)
        return self.of(
            super().map(function, num_parallel_calls, deterministic, element_spec=element_spec)
        )

    def ragged_batch(
        self,
        batch_size: int,
        drop_remainder: bool = False,
        row_splits_dtype: npt.DTypeLike = np.int64,
    ) -> "Dataset":
        """Batch elements of different lengths; as `tf.data.Dataset.ragged_batch`."""
        return self.of(super().ragged_batch(batch_size, drop_remainder))

    def window(
        self,
        size: int,
        shift: int | None = None,
        stride: int = 1,
        drop_remainder: bool = False,
    ) -> "Dataset":
        """Group runs of elements into datasets; as `tf.data.Dataset.window`."""
        windows = super().window(size, shift=shift, stride=stride, drop_remainder=drop_remainder)
        return self.of(
            StokerDataset.map(windows, _adopt_members, element_spec=windows.element_spec)
        )

    def group_by_window(
        self,
        key_func: Callable[..., int],
        reduce_func: Callable[[int, Any], Fluent],
        window_size: int | None = None,
        window_size_func: Callable[[int], int] | None = None,
        *,
        element_spec: Spec | None = None,
    ) -> "Dataset":
        """Group elements by key into windows; as `tf.data.Dataset.group_by_window`."""
        if callable(reduce_func):
            reduce_func = _OfDatasets(reduce_func)
        is_int = isinstance(window_size, int | np.integer) and not isinstance(window_size, bool)
        if window_size is not None and is_int and window_size < 1 and window_size_func is None:
            # TensorFlow looks at the size when the dataset is read.
            window_size, window_size_func = None, _Always(window_size)
        return self.of(
            super().group_by_window(
                key_func, reduce_func, window_size, window_size_func, element_spec=element_spec
            )
        )

    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: Callable[..., Any] | None = None,
        shard_func: Callable[..., Any] | None = None,
    ) -> Self:
        """Store the elements in files; as `tf.data.Dataset.snapshot`."""
        reader = _OfDatasets(reader_func) if callable(reader_func) else reader_func
        return super().snapshot(path, compression, reader_func=reader, shard_func=shard_func)

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Spec | None = None,
        compression: str | None = "AUTO",
        reader_func: Callable[..., Any] | None = None,
        wait: bool = False,
    ) -> "Dataset":
        """Read the elements that `save` wrote; as `tf.data.Dataset.load`.

        Args:
            path: the folder given to `save`.
            element_spec: of the elements; the files contain the spec, too.
            compression: checked if given; the files contain the compression.
            reader_func: called with a dataset of a dataset per file; returns the dataset to read.
            wait: must be False.

        Raises:
            UnimplementedError: if `wait` is True.
        """
        if wait:
            raise UnimplementedError(
                "`wait=True` is not in this version of stoker; call load when save has returned"
            )
        reader = _OfDatasets(reader_func) if callable(reader_func) else reader_func
        return cls.of(super().load(path, element_spec, compression, reader_func=reader))

    def with_options(self, options: StokerOptions | Options) -> Self:
        """Return the dataset with `options` set, TensorFlow's or stoker's."""
        return super().with_options(options.resolve() if isinstance(options, Options) else options)

    def as_numpy_iterator(self) -> NumpyIterator:  # type: ignore[override]  # wraps an Iterator
        """Start an epoch that yields NumPy scalars and arrays, and bytes for text.

        Raises:
            InvalidTypeError: when read, if an element contains a dataset.
        """
        return NumpyIterator(self.iterator())


def _salted(node: Node) -> Node:
    """Return the node with a new salt, if the node draws random numbers."""
    if "salt" not in node.__struct_fields__:
        return node
    salt = random.salt(getattr(node, "seed", None))
    return msgspec.structs.replace(node, salt=salt) if salt.value else node


def _call(function: Callable[..., Any], *members: Any) -> Any:
    """Call a function of `Dataset.map`; a list is meant as its separate results, as in tf.data."""
    result = function(*members)
    return tuple(result) if isinstance(result, list) else result


class _Always:
    """A picklable function that returns the same value for each argument."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __call__(self, *_: Any) -> Any:
        return self._value


class _OfDatasets:
    """Wrap a function whose dataset arguments must have TensorFlow's methods."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def __call__(self, *args: Any) -> Any:
        return self._function(*_adopt(args))


def _adopt_members(*members: Any) -> Any:
    """Wrap a function for `Dataset.map`, which unpacks plain tuples."""
    return _adopt(members if len(members) > 1 else members[0])


def _adopt(value: Any) -> Any:
    return map_structure(
        lambda leaf: Dataset.of(leaf) if isinstance(leaf, StokerDataset) else leaf, value
    )
