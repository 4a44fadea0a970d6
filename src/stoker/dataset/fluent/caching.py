"""The fluent API: caching, saving, prefetching, and leaving out elements that fail."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, cast

from stoker.dataset import arguments, nodes
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.iterator import T_co
from stoker.dataset.pickling.fingerprint import Fingerprint
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.streams.failures import Origin
from stoker.dataset.tree.call_site import call_site
from stoker.elements.common_spec import ObservedSpec
from stoker.elements.spec import Spec, compatible, spec_from_wire, spec_to_wire
from stoker.errors import InvalidArgumentError, InvalidTypeError, NotFoundError, UnimplementedError

if TYPE_CHECKING:
    import stoker


class Caching(Fluent[T_co]):
    """Methods that change when or whether elements are computed, not their values."""

    def cache(self, filename: str | os.PathLike[str] = "") -> Self:
        """Keep the elements of the first whole epoch, which later epochs read without computing.

        An epoch that was left early or skipped ahead keeps nothing. In memory, the elements are
        kept for this process and their arrays are read-only.

        With a file name, elements are kept in the folder ``<filename>.stoker``, for later processes
        too: element by element, never all in memory, with checksums. While an epoch is written,
        concurrent epochs only read their input. An error in an element keeps the epoch from
        being kept, with a warning; a preceding `ignore_errors` leaves such elements out. The folder
        belongs to this pipeline: its nodes, arguments and given seeds. The code of functions and
        arrays in memory are not compared: delete the folder after changing functions or arrays.
        Under a service's splits, the elements are kept in unnamed files beside the folder, for the
        epochs of a task.

        As `tf.data.Dataset.cache`.

        Args:
            filename: a local path without ending; ``""`` for memory.

        Raises:
            InvalidArgumentError: if `filename` is not a local path.
            FailedPreconditionError: when read, if another pipeline wrote the folder.
            DataLossError: when read, if the folder is damaged, at the damaged elements.
            OSError: when read, if the folder cannot be written; no element is lost.

        Example:
            >>> dataset = Dataset.range(3).map(lambda x: x + 1).cache()
            >>> list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     dataset = Dataset.range(3).map(lambda x: x + 1).cache(f"{folder}/cache")
            ...     list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
        """
        if filename == "":
            return self._append(nodes.Cache(input=self.node))
        path = _path("filename", filename)
        if "://" in path:
            raise InvalidArgumentError(
                f"`filename` must be a local path; got {path!r}; snapshot() and save() take URLs"
            )
        node = nodes.CacheFile(
            input=self.node, filename=Pickled.of(path), fingerprint=Fingerprint.of(self.node)
        )
        return self._append(node)

    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: Callable[[Self], Self] | None = None,
        shard_func: Callable[..., int] | None = None,
    ) -> Self:
        """Keep the first whole epoch in a folder, which later epochs read.

        Each pipeline (its nodes, arguments and given seeds, not its functions, nor arrays in
        memory) has its own folder below `path`, so that a changed pipeline is written beside the
        earlier folder. While an epoch is written, concurrent epochs only read their input. Elements
        come in the order of writing, file after file. Under a service's splits, nothing is kept.

        As `tf.data.Dataset.snapshot`.

        Args:
            path: a local folder, or a URL that fsspec writes.
            compression: ``"GZIP"``, ``"ZLIB"``, or ``None`` for none; ``"AUTO"`` is none too.
            reader_func: from a dataset with a dataset per file to the dataset to read.
            shard_func: returns the number of the file for an element; ``None``: file after file,
                of 256 MiB.

        Raises:
            InvalidArgumentError: if `path` is empty, `compression` is not in this list, or
                `reader_func` or `shard_func` is not a function.
            DataLossError: when read, if a file is damaged, at the damaged elements.
            OSError: when read, if the folder cannot be written; no element is lost.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     dataset = Dataset.range(4).snapshot(folder, shard_func=lambda x: x % 2)
            ...     list(dataset), list(dataset)
            ([0, 1, 2, 3], [0, 2, 1, 3])
        """
        function = arguments.function
        node = nodes.Snapshot(
            input=self.node,
            path=Pickled.of(_path("path", path)),
            compression=_compression(compression),
            fingerprint=Fingerprint.of(self.node),
            shard_func=arguments.optional(function, "shard_func", shard_func),
            reader_func=arguments.optional(function, "reader_func", reader_func),
        )
        return self._append(node)

    def save(
        self,
        path: str | os.PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., int] | None = None,
        checkpoint_args: Any = None,
    ) -> None:
        """Read the dataset and write its elements to a folder.

        The folder is complete when it has ``stoker.json``, which is written last. Saving again
        replaces the folder atomically; a dataset loaded from the old folder must be loaded again.
        Where the element_spec is not declared, the spec observed in the elements is stored.

        As `tf.data.Dataset.save`.

        Args:
            path: a local folder, or a URL that fsspec writes.
            compression: ``"GZIP"``, ``"ZLIB"``, or ``None`` for none; ``"AUTO"`` is none too.
            shard_func: returns the number of the file for an element; ``None``: file after file,
                of 256 MiB.
            checkpoint_args: not supported.

        Raises:
            InvalidArgumentError: if `path` is empty, `compression` is not in this list,
                `shard_func` is not a function, or an element cannot be encoded.
            UnimplementedError: if `checkpoint_args` is given.
            FailedPreconditionError: if another process is saving to this folder now.
            OSError: if the folder cannot be written; nothing is left in the folder.
            Exception: the first error of an element; nothing is left then.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Dataset.range(3).batch(2).save(folder)
            ...     list(Dataset.load(folder))
            [array([0, 1]), array([2])]
        """
        from stoker.dataset.formats.storage import folder_at
        from stoker.dataset.formats.store import StoreWriter
        from stoker.dataset.nodes.snapshot import file_chooser

        if checkpoint_args is not None:
            raise UnimplementedError(
                "`checkpoint_args` are not supported: an interrupted save() leaves nothing and "
                "starts again; leave them out"
            )
        file_of = None
        if shard_func is not None:
            arguments.function("shard_func", shard_func)
            file_of = file_chooser(shard_func, Origin("save", call_site(), None))
        folder, codec = folder_at(_path("path", path)), _compression(compression)
        # The description is written after the elements, and so may contain what the elements show.
        observed = ObservedSpec(self.element_spec)
        writer = StoreWriter(
            folder, lambda: spec_to_wire(observed.spec), codec, {}, file_of, overwrite=True
        )
        try:
            with self.iterator() as elements:
                for element in elements:
                    observed.add(element)
                    writer.add([element])
            writer.finish()
        finally:
            # Without effect after `finish`; else no partial file is left.
            writer.abandon()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Spec | None = None,
        compression: str | None = "AUTO",
        reader_func: "Callable[[stoker.Dataset[Any]], Fluent[Any]] | None" = None,
    ) -> "stoker.Dataset[Any]":
        """Return the elements that `save` wrote.

        Their number and element_spec are read immediately, the elements when needed, in the order
        of saving, file after file. A service can split the dataset at
        any element, and skipping is cheap.

        As `tf.data.Dataset.load`.

        Args:
            path: the folder, or its URL.
            element_spec: the spec of the elements; names the classes of namedtuples and
                dataclasses, which otherwise come back as generated ones of the same name.
                ``None``: as saved.
            compression: not needed: the files record the compression.
            reader_func: from a dataset with a dataset per file to the dataset to read.

        Raises:
            InvalidArgumentError: if `path` is empty, `compression` is unknown, `reader_func` is
                not a function, or `element_spec` does not agree with the stored spec.
            NotFoundError: if the folder has no complete saved dataset.
            DataLossError: if the folder is damaged; when read, at the damaged elements.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Dataset.range(1000).save(folder)
            ...     list(Dataset.load(folder).skip(998))
            [998, 999]
        """
        from stoker.dataset.formats.storage import folder_at
        from stoker.dataset.formats.store import read_description
        from stoker.dataset.nodes.snapshot import datasets_of_files

        folder = _path("path", path)
        # Only checked: the files record their compression.
        _compression(compression)
        found = read_description(folder_at(folder))
        if found is None:
            raise NotFoundError(
                f"{folder} has no saved dataset; check the path, and that save() was completed"
            )
        declared = arguments.spec("element_spec", element_spec)
        stored = spec_from_wire(found.spec)
        if element_spec is not None and not compatible(element_spec, stored):
            raise InvalidArgumentError(
                f"`element_spec` must agree with what was saved, {stored}; got {element_spec}"
            )
        load = partial(nodes.Load, path=folder, stored=found.spec, spec=declared, site=call_site())
        if reader_func is None:
            return cls._source(load(files=found.files))
        arguments.function("reader_func", reader_func)
        tree = datasets_of_files(cls._source, load, found.files, call_site())
        result = reader_func(cls._source(tree))
        if not isinstance(result, cls):
            raise InvalidTypeError(f"`reader_func` must return a Dataset; got {result!r}")
        return cast("stoker.Dataset[Any]", result)

    def ignore_errors(self, log_warning: bool = False, max_errors: int | None = None) -> Self:
        """Leave out the elements that fail.

        ``stats()["errors_ignored"]`` of the iterator counts these errors, errors of a service's
        workers included. An error after which nothing more can be read is raised all the same.

        As `tf.data.Dataset.ignore_errors`.

        Args:
            log_warning: whether each is logged as a warning of the logger ``stoker.dataset``.
            max_errors: the most errors to leave out in an epoch (of each task, on a service);
                further errors are raised. ``None``: no limit.

        Raises:
            InvalidArgumentError: if `log_warning` is not a bool, or `max_errors` is neither an
                int of 0 or more nor None.

        Example:
            >>> iterator = iter(Dataset.range(-2, 3).map(lambda x: 12 // x).ignore_errors())
            >>> list(iterator), iterator.stats()["errors_ignored"]
            ([-6, -12, 12, 6], 1)
        """
        limit = partial(arguments.integer, minimum=0, what="0 or more, or None")
        node = nodes.IgnoreErrors(
            input=self.node,
            log_warning=arguments.flag("log_warning", log_warning),
            max_errors=arguments.optional(limit, "max_errors", max_errors),
        )
        return self._append(node)

    def prefetch(self, buffer_size: int | None) -> Self:
        """Compute elements ahead of the reader on a thread.

        As `tf.data.Dataset.prefetch`.

        Args:
            buffer_size: the most elements to buffer; 0 computes none ahead, `stoker.AUTOTUNE` or
                ``None`` chooses during the epoch.

        Raises:
            InvalidArgumentError: if `buffer_size` is neither 0 or more, AUTOTUNE nor ``None``.

        Example:
            >>> list(Dataset.range(3).prefetch(2))
            [0, 1, 2]
        """
        size = arguments.buffer("buffer_size", buffer_size)
        return self._append(nodes.Prefetch(input=self.node, buffer_size=size))


def _path(name: str, value: Any) -> str:
    if not isinstance(value, str | os.PathLike) or isinstance(os.fspath(value), bytes):
        raise InvalidTypeError(f"`{name}` must be a path, not empty; got {value!r}")
    path = os.fspath(value)
    if not path:
        raise InvalidArgumentError(f"`{name}` must be a path, not empty; got {value!r}")
    return str(path)


def _compression(value: Any) -> str:
    if value in (None, "", "AUTO"):
        return ""
    from stoker.dataset.formats.opening import WINDOW_BITS

    if value not in WINDOW_BITS:
        raise InvalidArgumentError(
            f"Invalid `compression` argument: {value!r}; give 'AUTO', "
            f"{', '.join(map(repr, WINDOW_BITS))} or None"
        )
    return str(value)
