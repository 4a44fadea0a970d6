"""tf.data."""

from typing import Any

from stoker.compat.tf.data import experimental
from stoker.compat.tf.data.dataset import Dataset, NumpyIterator
from stoker.compat.tf.data.options import Options, ThreadingOptions
from stoker.compat.tf.data.readers import FixedLengthRecordDataset, TextLineDataset, TFRecordDataset
from stoker.compat.tf.missing import missing
from stoker.dataset.iterator import Iterator
from stoker.dataset.tree.node import AUTOTUNE, INFINITE_CARDINALITY, UNKNOWN_CARDINALITY

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "FixedLengthRecordDataset",
    "Iterator",
    "NumpyIterator",
    "Options",
    "TFRecordDataset",
    "TextLineDataset",
    "ThreadingOptions",
    "experimental",
]


def __getattr__(name: str) -> Any:
    raise missing("tf.data", name)
