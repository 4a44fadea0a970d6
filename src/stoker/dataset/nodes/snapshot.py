"""snapshot: the first whole pass is kept in a folder and read again, in later processes too."""

import operator
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from stoker.dataset.fingerprint import Identity, check_same
from stoker.dataset.formats.elements_folder import (
    Description,
    ElementsPart,
    FolderBusyError,
    FolderWriter,
    read_description,
)
from stoker.dataset.nodes.load import Load
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.nested import NestedDatasets
from stoker.dataset.nodes.range import Range
from stoker.dataset.pickled import Pickled
from stoker.dataset.streams.caching import LazyStream, recorded
from stoker.dataset.streams.failures import Origin, raise_failure
from stoker.dataset.streams.stream import Stream
from stoker.dataset.tree.node import Context, Node
from stoker.dataset.unpacking import arguments_of
from stoker.elements.spec import Spec, spec_to_wire
from stoker.errors import InvalidArgumentError


class Snapshot(Node, frozen=True, eq=False, kw_only=True):
    """Keeps the elements of the first pass that was read to its end, below `path`.

    Each pipeline has a folder of its own there. Where a service hands out splits nothing is kept
    or read: what comes then is a part, and another one each time.

    Attributes:
        input: what it reads.
        path: a local folder or a URL; opaque, because where elements are kept is not what the
            pipeline is.
        compression: as for `ElementsWriter`.
        identity: of the input.
        shard_func: says in which file an element is kept.
        reader_func: from a dataset of one dataset for each file to what is read.
    """

    kind: ClassVar[str] = "snapshot"
    input: Node
    path: Pickled
    compression: str
    identity: Identity
    shard_func: Pickled | None = None
    reader_func: Pickled | None = None

    def element_spec(self) -> Spec:
        return self.input.element_spec()

    def cardinality(self) -> int:
        return self.input.cardinality()

    def inputs_per_element(self) -> int:
        return 1

    def open(self, context: Context) -> Stream:
        # What is kept must not depend on which pass was the first to be read whole.
        first = replace(context, epoch=(0,))
        if context.splits is not None:
            return self.input.open(first)
        return LazyStream(lambda: self._open(context, first))

    def _open(self, context: Context, first: Context) -> Stream:
        about = self.identity.about(first)
        seed = f"-{about['seed']}" if about["seed"] else ""
        folder = f"{self.path.value.rstrip('/')}/{about['structure'][:16]}{seed}"
        found = read_description(folder)
        if found is None:
            try:
                record = self._writer(folder, about)
            except FolderBusyError:
                return self.input.open(first)
            found = read_description(folder)  # another may have finished before we had the lock
            if found is None:
                return self._record(first, record)
            record.abandon()
        check_same(found.about, about, folder)
        return self._read(context, folder, found)

    def _writer(self, folder: str, about: dict[str, str]) -> FolderWriter:
        file_of = None
        if self.shard_func is not None:
            file_of = file_chooser(self.shard_func.value, Origin(self.kind, self.site, None))
        return FolderWriter(
            folder,
            lambda: spec_to_wire(self.element_spec()),
            self.compression,
            about,
            file_of,
            overwrite=False,
        )

    def _record(self, context: Context, record: FolderWriter) -> Stream:
        keeper = f"`snapshot({self.path.value!r})` ({self.site})"
        return recorded(lambda: self.input.open(context), record, keeper)

    def _read(self, context: Context, folder: str, found: Description) -> Stream:
        spec = Pickled.of(self.element_spec())
        load = partial(Load, path=folder, stored=found.spec, spec=spec, site=self.site)
        if self.reader_func is None:
            return load(files=tuple(found.files)).open(context)
        make_dataset = context.make_dataset
        datasets = make_dataset(datasets_of_files(make_dataset, load, found.files, self.site))
        nested = NestedDatasets(context, self, self.reader_func.value)
        return nested.open(0, (datasets,))


def datasets_of_files(
    make_dataset: Callable[[Node], Any],
    load: Callable[..., Load],
    files: list[ElementsPart],
    site: str,
) -> Node:
    """Return the tree that yields one dataset per file, the argument of a `reader_func`."""

    def dataset_of(number: int) -> Any:
        return make_dataset(load(files=(files[number],)))

    numbers = Range(start=0, stop=len(files), step=1, site=site)
    return Map(input=numbers, function=Pickled.of(dataset_of), site=site)


def file_chooser(function: Callable[..., Any], origin: Origin) -> Callable[[Any], int]:
    """A `shard_func` as `FolderWriter` takes it: its result is checked, its errors are marked."""
    calls = -1

    def file_of(element: Any) -> int:
        nonlocal calls
        calls += 1
        try:
            result = function(*arguments_of(element))
            try:
                number = operator.index(result)
            except TypeError:
                number = -1
            if number < 0:
                raise InvalidArgumentError(
                    f"`shard_func` must return an int of 0 or more, the file an element is kept "
                    f"in; it returned {result!r}"
                )
        except Exception as error:  # noqa: BLE001 - user code may raise anything
            raise_failure(error, origin._replace(index=calls))
        return number

    return file_of
