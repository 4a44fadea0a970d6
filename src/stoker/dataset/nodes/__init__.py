"""A file per family of nodes, imported when first used so that `import stoker` is fast."""

import functools
import re
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from stoker.dataset.nodes.assert_cardinality import AssertCardinality as AssertCardinality
    from stoker.dataset.nodes.batch import Batch as Batch
    from stoker.dataset.nodes.batch import MapAndBatch as MapAndBatch
    from stoker.dataset.nodes.cache import Cache as Cache
    from stoker.dataset.nodes.cache_file import CacheFile as CacheFile
    from stoker.dataset.nodes.choose import Choose as Choose
    from stoker.dataset.nodes.choose import Sample as Sample
    from stoker.dataset.nodes.choose import SampleByWeights as SampleByWeights
    from stoker.dataset.nodes.concatenate import Concatenate as Concatenate
    from stoker.dataset.nodes.elements import Elements as Elements
    from stoker.dataset.nodes.enumerate import Enumerate as Enumerate
    from stoker.dataset.nodes.files import EncodedNames as EncodedNames
    from stoker.dataset.nodes.files import ListFiles as ListFiles
    from stoker.dataset.nodes.filter import Filter as Filter
    from stoker.dataset.nodes.flat_map import FlatMap as FlatMap
    from stoker.dataset.nodes.generator import Generator as Generator
    from stoker.dataset.nodes.group_by_window import GroupByWindow as GroupByWindow
    from stoker.dataset.nodes.ignore_errors import IgnoreErrors as IgnoreErrors
    from stoker.dataset.nodes.interleave import Interleave as Interleave
    from stoker.dataset.nodes.load import Load as Load
    from stoker.dataset.nodes.map import Map as Map
    from stoker.dataset.nodes.padded_batch import PaddedBatch as PaddedBatch
    from stoker.dataset.nodes.prefetch import Prefetch as Prefetch
    from stoker.dataset.nodes.ragged_batch import RaggedBatch as RaggedBatch
    from stoker.dataset.nodes.random_numbers import RandomNumbers as RandomNumbers
    from stoker.dataset.nodes.range import Counter as Counter
    from stoker.dataset.nodes.range import Range as Range
    from stoker.dataset.nodes.rebatch import Rebatch as Rebatch
    from stoker.dataset.nodes.records import Records as Records
    from stoker.dataset.nodes.rejection_resample import RejectionResample as RejectionResample
    from stoker.dataset.nodes.repeat import Repeat as Repeat
    from stoker.dataset.nodes.scan import Scan as Scan
    from stoker.dataset.nodes.shard import Shard as Shard
    from stoker.dataset.nodes.shuffle import Shuffle as Shuffle
    from stoker.dataset.nodes.snapshot import Snapshot as Snapshot
    from stoker.dataset.nodes.take import Skip as Skip
    from stoker.dataset.nodes.take import Take as Take
    from stoker.dataset.nodes.take import TakeWhile as TakeWhile
    from stoker.dataset.nodes.tensors import Tensors as Tensors
    from stoker.dataset.nodes.tensors import TensorSlices as TensorSlices
    from stoker.dataset.nodes.unbatch import Unbatch as Unbatch
    from stoker.dataset.nodes.unique import Unique as Unique
    from stoker.dataset.nodes.window import Window as Window
    from stoker.dataset.nodes.zip import Zip as Zip

# Families of nodes are imported when first used: forty small modules would double the time of
# `import stoker`. (docs/decisions/085)
# The modules of classes whose module does not have the name of the class.
_FAMILIES = {
    "Counter": "range",
    "EncodedNames": "files",
    "ListFiles": "files",
    "MapAndBatch": "batch",
    "Sample": "choose",
    "SampleByWeights": "choose",
    "Skip": "take",
    "TakeWhile": "take",
    "TensorSlices": "tensors",
}


def __getattr__(name: str) -> Any:
    module = _FAMILIES.get(name) or re.sub("(?<!^)(?=[A-Z])", "_", name).lower()
    if module not in _modules():
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{module}"), name)
    return value


@functools.cache
def _modules() -> frozenset[str]:
    return frozenset(module.name for module in iter_modules(__path__))


def register_all() -> None:
    """Import all families, so that the registry contains all kinds."""
    for module in _modules():
        import_module(f"{__name__}.{module}")
