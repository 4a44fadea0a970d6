"""One small file per family of nodes; importing this registers them all."""

from stoker.dataset.nodes.batch import Batch, MapAndBatch
from stoker.dataset.nodes.cache import Cache
from stoker.dataset.nodes.files import ListFiles
from stoker.dataset.nodes.filter import Filter
from stoker.dataset.nodes.flat_map import FlatMap
from stoker.dataset.nodes.generator import Generator
from stoker.dataset.nodes.map import Map
from stoker.dataset.nodes.prefetch import Prefetch
from stoker.dataset.nodes.range import Range
from stoker.dataset.nodes.repeat import Repeat
from stoker.dataset.nodes.shuffle import Shuffle
from stoker.dataset.nodes.take import Skip, Take
from stoker.dataset.nodes.tensors import Tensors, TensorSlices

__all__ = [
    "Batch",
    "Cache",
    "Filter",
    "FlatMap",
    "Generator",
    "ListFiles",
    "Map",
    "MapAndBatch",
    "Prefetch",
    "Range",
    "Repeat",
    "Shuffle",
    "Skip",
    "Take",
    "TensorSlices",
    "Tensors",
]
