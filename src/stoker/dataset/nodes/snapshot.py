"""snapshot: the first whole epoch is kept in a folder and read again, in later processes too."""

import itertools
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, ClassVar

from msgspec.structs import replace

from stoker.dataset.formats.elements_stream import StoredFile
from stoker.dataset.formats.storage import folder_at
from stoker.dataset.formats.store import Description
from stoker.dataset.nodes.load import Load
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickling.fingerprint import Fingerprint
from stoker.dataset.pickling.pickled import Pickled
from stoker.dataset.random import with_globals_seeded
from stoker.dataset.streams.caching import LazyStream, read_or_write
from stoker.dataset.streams.calls.task_calls import unplaced
from stoker.dataset.streams.failures import Origin, raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node, OneInput
from stoker.dataset.unpacking import arguments_of
from stoker.errors import InvalidArgumentError, InvalidTypeError

_NOT_A_FILE = (
    "`shard_func` must return an int of 0 or more, the number of the file to keep the element in; "
    "it returned {!r}"
)


class Snapshot(OneInput, frozen=True, eq=False, kw_only=True):
    """Keeps the elements of the first epoch that was read to its end, below `path`.

    Each pipeline has its own store there. Under a service's splits nothing is kept or read: the
    elements are a part of the dataset, and a different one each time.

    Attributes:
        path: a local folder or a URL; pickled, because the place of the store is not part of the
            pipeline's structure.
        compression: as for `ElementsWriter`.
        fingerprint: of the input.
        shard_func: returns the number of the file to keep an element in.
        reader_func: from a dataset with a dataset per file to the dataset to read.
    """

    kind: ClassVar[str] = "snapshot"
    one_to_one: ClassVar[bool] = True
    uncounted: ClassVar[str] = (
        "its `reader_func` orders the elements; leave out `reader_func`, or use "
        'processing_mode="distributed_epoch"'
    )
    path: Pickled
    compression: str
    fingerprint: Fingerprint
    shard_func: Pickled | None = None
    reader_func: Pickled | None = None

    def open(self, context: Context) -> Stream:
        # The elements kept must not depend on which epoch was the first to be read whole.
        first = replace(context, epoch=(0,))
        # A part of the dataset is a different part in each epoch, and is not kept.
        if context.part_reader(self) is not None:
            return first.open(self.input)
        return LazyStream(lambda: self._open(context, first))

    def _open(self, context: Context, first: Context) -> Stream:
        metadata = self.fingerprint.metadata(first)
        # Elements that depend on a seed have a store for each seed.
        seed = f"-{metadata['seed']}" if metadata["seed"] else ""
        path = f"{self.path.value.rstrip('/')}/{metadata['structure'][:16]}{seed}"
        file_of = None
        if self.shard_func is not None:
            shard_func = unplaced(context.calls, self.shard_func.value)
            shard_func = with_globals_seeded(first, self, shard_func)
            file_of = file_chooser(shard_func, self.origin)
        return read_or_write(
            self,
            first,
            folder_at(path),
            metadata=metadata,
            read=lambda found: self._read(context, path, found),
            owner=f"snapshot({self.path.value!r})",
            compression=self.compression,
            file_of=file_of,
        )

    def _read(self, context: Context, path: str, found: Description) -> Stream:
        spec = Pickled.of(self.element_spec())
        load = partial(Load, path=path, stored=found.spec, spec=spec, site=self.site)
        if self.reader_func is None:
            return load(files=found.files).open(context)
        make_dataset = context.make_dataset
        datasets = make_dataset(datasets_of_files(make_dataset, load, found.files, self.site))
        nested = NestedDatasets(context, self, self.reader_func.value)
        return nested.open(0, (datasets,))


def datasets_of_files(
    make_dataset: Callable[[Node], Any],
    load: Callable[..., Load],
    files: Sequence[StoredFile],
    site: str,
) -> Node:
    """Return the tree that yields a dataset per file, the argument of a `reader_func`."""

    def dataset_of(number: int) -> Any:
        return make_dataset(load(files=(files[number],)))

    numbers = Range(start=0, stop=len(files), step=1, site=site)
    return Map(input=numbers, function=Pickled.of(dataset_of), site=site)


def file_chooser(function: Callable[..., Any], origin: Origin) -> Callable[[Any], int]:
    """Return the `file_of` of `StoreWriter` that calls a `shard_func`.

    The function checks the results and marks the errors with their origin.
    """
    # The number of each element, for errors: elements come in order, from one thread.
    calls = itertools.count()

    def file_of(element: Any) -> int:
        index = next(calls)
        try:
            return _file_number(function(*arguments_of(element)))
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, origin.at(index, element))

    return file_of


def _file_number(result: Any) -> int:
    try:
        number = operator.index(result)
    except TypeError as error:
        raise InvalidTypeError(_NOT_A_FILE.format(result)) from error
    if number < 0:
        raise InvalidArgumentError(_NOT_A_FILE.format(result))
    return number
