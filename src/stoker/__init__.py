"""The input-data service that keeps accelerators fed.

`Dataset` describes a pipeline of plain Python functions; `Dataset.distribute` runs it on the
workers of a service. The API and its semantics are those of tf.data and tf.data service.
"""

import sys

# Before the imports, which would fail with an error that names no remedy.
if sys.platform == "win32":
    raise ImportError(
        "stoker does not run on Windows: it needs fork-safe sockets and shared memory of Linux or "
        "macOS; use WSL 2 or a Linux container"
    )

from typing import TYPE_CHECKING

from stoker.lazy_names import lazy_names
from stoker.version import VERSION

if TYPE_CHECKING:
    from stoker import errors, random, service, testing
    from stoker.adapters.headroom import headroom
    from stoker.cluster import LocalCluster
    from stoker.dataset.dataset import Dataset
    from stoker.dataset.formats.tfrecord_writer import TFRecordWriter
    from stoker.dataset.iterator import Iterator
    from stoker.dataset.options import Options
    from stoker.dataset.per_worker import per_worker
    from stoker.dataset.tree.node import (
        AUTOTUNE,
        INFINITE_CARDINALITY,
        SHARD_HINT,
        UNKNOWN_CARDINALITY,
    )
    from stoker.elements.ragged import RaggedArray
    from stoker.elements.sparse import SparseArray
    from stoker.elements.spec import RaggedSpec, SparseSpec, TensorSpec, UnknownSpec
else:
    # At run time a name is imported at its first use; type checkers read the imports above.
    __getattr__ = lazy_names(
        "stoker",
        {
            "AUTOTUNE": "stoker.dataset.tree.node",
            "INFINITE_CARDINALITY": "stoker.dataset.tree.node",
            "SHARD_HINT": "stoker.dataset.tree.node",
            "UNKNOWN_CARDINALITY": "stoker.dataset.tree.node",
            "Dataset": "stoker.dataset.dataset",
            "Iterator": "stoker.dataset.iterator",
            "LocalCluster": "stoker.cluster",
            "Options": "stoker.dataset.options",
            "RaggedArray": "stoker.elements.ragged",
            "RaggedSpec": "stoker.elements.spec",
            "SparseArray": "stoker.elements.sparse",
            "SparseSpec": "stoker.elements.spec",
            "TFRecordWriter": "stoker.dataset.formats.tfrecord_writer",
            "TensorSpec": "stoker.elements.spec",
            "UnknownSpec": "stoker.elements.spec",
            "errors": "stoker.errors",
            "headroom": "stoker.adapters.headroom",
            "per_worker": "stoker.dataset.per_worker",
            "random": "stoker.random",
            "service": "stoker.service",
            "testing": "stoker.testing",
        },
    )

__version__ = VERSION

# A list of literals, since type checkers evaluate no expression.
__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "Dataset",
    "Iterator",
    "LocalCluster",
    "Options",
    "RaggedArray",
    "RaggedSpec",
    "SparseArray",
    "SparseSpec",
    "TFRecordWriter",
    "TensorSpec",
    "UnknownSpec",
    "__version__",
    "errors",
    "headroom",
    "per_worker",
    "random",
    "service",
    "testing",
]


def __dir__() -> list[str]:
    return sorted(__all__)
