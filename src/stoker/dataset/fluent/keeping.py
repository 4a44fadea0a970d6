"""The fluent API: what is computed ahead or kept, and what is left out because it fails."""

import os
from collections.abc import Callable
from functools import partial
from typing import Any, Self

from stoker.dataset import arguments, nodes
from stoker.dataset.fingerprint import Identity
from stoker.dataset.fluent.fluent import Fluent
from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.failures import Origin
from stoker.dataset.tree.call_site import call_site
from stoker.elements.observed import ObservedSpec
from stoker.elements.spec import Spec, compatible, spec_from_wire, spec_to_wire
from stoker.errors import InvalidArgumentError, NotFoundError, UnimplementedError


class Keeping(Fluent):
    """Methods that change when elements are computed, or whether, not what they are."""

    def cache(self, filename: str | os.PathLike[str] = "") -> Self:
        """Keeps the elements from the first whole pass on; as tf.data.Dataset.cache.

        Later passes read what was kept and compute nothing. A pass that was left early or skipped
        keeps nothing. In memory, it is kept for this process and arrays are read-only.

        With a file name, it is kept in ``<filename>.stoker``, for later processes too: element by
        element, never all in memory, with checksums. While one pass writes, others at the same
        time read through and keep nothing. An error in an element keeps the pass from being kept,
        with a warning; `ignore_errors` before it leaves such elements out. The file belongs to
        this pipeline: its nodes, arguments and seeds. The code of functions and arrays in memory
        are not compared: delete the file when they have changed. Where a service hands out splits,
        what is kept is a file without a name beside it, for the tasks' own passes.

        Args:
            filename: a local path without ending; ``""`` for memory.

        Raises:
            InvalidArgumentError: `filename` is no local path.
            FailedPreconditionError: when read, if the file was written by another pipeline.
            DataLossError: when read, if the file is damaged, at the elements it concerns.
            OSError: when read, if the file cannot be written; the elements still come.

        Example:
            >>> dataset = Dataset.range(3).map(lambda x: x + 1).cache()
            >>> list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     dataset = Dataset.range(3).map(lambda x: x + 1).cache(f"{folder}/kept")
            ...     list(dataset), list(dataset)
            ([1, 2, 3], [1, 2, 3])
        """
        if filename == "":
            return self._derive(nodes.Cache(input=self.node, site=call_site()))
        path = _path("filename", filename)
        if "://" in path:
            raise InvalidArgumentError(
                f"`filename` must be a local path; got {path!r}; snapshot() and save() take URLs"
            )
        return self._derive(
            nodes.CacheFile(
                input=self.node,
                filename=Pickled.of(path),
                identity=Identity.of(self.node),
                site=call_site(),
            )
        )

    def snapshot(
        self,
        path: str | os.PathLike[str],
        compression: str | None = "AUTO",
        reader_func: Callable[[Self], Self] | None = None,
        shard_func: Callable[..., int] | None = None,
    ) -> Self:
        """Keeps the first whole pass in a folder and reads it from then on.

        As tf.data.Dataset.snapshot: each pipeline (its nodes, arguments and seeds, not the code of
        its functions, nor arrays in memory) has a folder of its own below `path`, so that a changed
        one writes anew beside it. While one pass writes, others read through. Elements come in the
        order in which they were written, file after file. Where a service hands out splits, nothing
        is kept.

        Args:
            path: a local folder, or a URL that fsspec writes.
            compression: ``"GZIP"``, ``"ZLIB"``, or ``None`` for none, as ``"AUTO"`` is.
            reader_func: from a dataset that holds one dataset for each file to the dataset to read.
            shard_func: the number of the file for an element; ``None``: one file after the other,
                of 256 MiB.

        Raises:
            InvalidArgumentError: an argument is none of these.
            DataLossError: when read, if a file is damaged, at the elements it concerns.
            OSError: when read, if the folder cannot be written; the elements still come.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     dataset = Dataset.range(4).snapshot(folder, shard_func=lambda x: x % 2)
            ...     list(dataset), list(dataset)
            ([0, 1, 2, 3], [0, 2, 1, 3])
        """
        shard = None if shard_func is None else arguments.function("shard_func", shard_func)
        reader = None if reader_func is None else arguments.function("reader_func", reader_func)
        return self._derive(
            nodes.Snapshot(
                input=self.node,
                path=Pickled.of(_path("path", path)),
                compression=_compression(compression),
                identity=Identity.of(self.node),
                shard_func=shard,
                reader_func=reader,
                site=call_site(),
            )
        )

    def save(
        self,
        path: str | os.PathLike[str],
        compression: str | None = None,
        shard_func: Callable[..., int] | None = None,
        checkpoint_args: Any = None,
    ) -> None:
        """Reads the dataset and writes its elements to a folder; as tf.data.Dataset.save.

        The folder is complete when ``stoker.json`` is there, which is written last. Saved again, it
        is replaced at one blow, and a dataset that was loaded from it must be loaded anew. Where
        the element_spec is not declared, what the elements turn out to be is stored.

        Args:
            path: a local folder, or a URL that fsspec writes.
            compression: ``"GZIP"``, ``"ZLIB"``, or ``None`` for none, as ``"AUTO"`` is.
            shard_func: the number of the file for an element; ``None``: one file after the other,
                of 256 MiB.
            checkpoint_args: not supported.

        Raises:
            InvalidArgumentError: an argument is none of these, or an element cannot be kept.
            UnimplementedError: `checkpoint_args` are given.
            FailedPreconditionError: another process is saving to this folder now.
            OSError: the folder cannot be written; nothing of it is left.
            Exception: the first error of an element; nothing is left then.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Dataset.range(3).batch(2).save(folder)
            ...     list(Dataset.load(folder))
            [array([0, 1]), array([2])]
        """
        from stoker.dataset.formats.elements_folder import FolderWriter
        from stoker.dataset.nodes.snapshot import file_chooser

        if checkpoint_args is not None:
            raise UnimplementedError(
                "`checkpoint_args` are not supported: a saving that was interrupted leaves nothing "
                "and starts anew; leave them out"
            )
        file_of = None
        if shard_func is not None:
            arguments.function("shard_func", shard_func)
            file_of = file_chooser(shard_func, Origin("save", call_site(), None))
        folder, codec = _path("path", path), _compression(compression)
        observed = ObservedSpec(self.element_spec)
        writer = FolderWriter(
            folder, lambda: spec_to_wire(observed.spec), codec, {}, file_of, overwrite=True
        )
        try:
            with self.iterator() as elements:
                for element in elements:
                    observed.add(element)
                    writer.add([element])
            writer.finish()
        finally:
            writer.abandon()

    @classmethod
    def load(
        cls,
        path: str | os.PathLike[str],
        element_spec: Spec | None = None,
        compression: str | None = "AUTO",
        reader_func: Callable[[Self], Self] | None = None,
    ) -> Self:
        """The elements that `save` wrote; as tf.data.Dataset.load.

        Their number and element_spec are looked up at once, the elements only when they are read,
        in the order in which they were saved, file after file. A service can split it at any
        element, and skipping costs next to nothing.

        Args:
            path: the folder, or its URL.
            element_spec: what the elements are; names the classes of namedtuples and dataclasses,
                which otherwise come back as generated ones of the same name. ``None``: as saved.
            compression: not needed: the files say it.
            reader_func: from a dataset that holds one dataset for each file to the dataset to read.

        Raises:
            InvalidArgumentError: an argument is none of these, or the spec is another.
            NotFoundError: there is no complete saved dataset.
            DataLossError: the folder is damaged; when read, at the elements it concerns.

        Example:
            >>> import tempfile
            >>> with tempfile.TemporaryDirectory() as folder:
            ...     Dataset.range(1000).save(folder)
            ...     list(Dataset.load(folder).skip(998))
            [998, 999]
        """
        from stoker.dataset.formats.elements_folder import read_description
        from stoker.dataset.nodes.snapshot import datasets_of_files

        folder = _path("path", path)
        _compression(compression)
        found = read_description(folder)
        if found is None:
            raise NotFoundError(
                f"{folder} holds no saved dataset; check the path, and that save() came to its end"
            )
        declared = arguments.spec("element_spec", element_spec)
        stored = spec_from_wire(found.spec)
        if element_spec is not None and not compatible(element_spec, stored):
            raise InvalidArgumentError(
                f"`element_spec` must agree with what was saved, {stored}; got {element_spec}"
            )
        load = partial(nodes.Load, path=folder, stored=found.spec, spec=declared, site=call_site())
        if reader_func is None:
            return cls._source(load(files=tuple(found.files)))
        arguments.function("reader_func", reader_func)
        tree = datasets_of_files(cls._source, load, found.files, call_site())
        result = reader_func(cls._source(tree))
        if not isinstance(result, cls):
            raise InvalidArgumentError(f"`reader_func` must return a Dataset; got {result!r}")
        return result

    def ignore_errors(self, log_warning: bool = False, max_errors: int | None = None) -> Self:
        """Leaves out the elements that fail; as tf.data.Dataset.ignore_errors.

        ``stats()["errors_ignored"]`` of the iterator counts them, also those of a service's
        workers. What says that nothing more can be read is raised all the same.

        Args:
            log_warning: whether each is logged as a warning of the logger ``stoker.dataset``.
            max_errors: the errors to leave out in one pass (of each task, on a service); those
                beyond are raised. ``None``: any number.

        Raises:
            InvalidArgumentError: an argument is none of these.

        Example:
            >>> iterator = iter(Dataset.range(-2, 3).map(lambda x: 12 // x).ignore_errors())
            >>> list(iterator), iterator.stats()["errors_ignored"]
            ([-6, -12, 12, 6], 1)
        """
        what = "0 or more, or None"
        limit = max_errors
        if limit is not None:
            limit = arguments.integer("max_errors", limit, minimum=0, what=what)
        return self._derive(
            nodes.IgnoreErrors(
                input=self.node,
                log_warning=arguments.flag("log_warning", log_warning),
                max_errors=limit,
                site=call_site(),
            )
        )

    def prefetch(self, buffer_size: int) -> Self:
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


def _path(name: str, value: Any) -> str:
    try:
        path = os.fspath(value)
    except TypeError:
        path = ""
    if not isinstance(path, str) or not path:
        raise InvalidArgumentError(f"`{name}` must be a path, not empty; got {value!r}")
    return path


def _compression(value: Any) -> str:
    if value in (None, "", "AUTO"):
        return ""
    from stoker.dataset.formats.elements_file import COMPRESSIONS

    if value not in COMPRESSIONS:
        raise InvalidArgumentError(
            f"Invalid `compression` argument: {value!r}; give 'AUTO', "
            f"{', '.join(map(repr, COMPRESSIONS))} or None"
        )
    return str(value)
