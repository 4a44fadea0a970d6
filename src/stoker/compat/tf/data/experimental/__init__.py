"""tf.data.experimental."""

import importlib
from typing import TYPE_CHECKING, Any

from stoker.compat.tf.data.experimental.datasets import (
    Counter,
    RandomDataset,
    cardinality,
    choose_from_datasets,
    from_list,
    get_single_element,
    get_structure,
    load,
    sample_from_datasets,
    save,
)
from stoker.compat.tf.data.experimental.pad_to_cardinality import pad_to_cardinality
from stoker.compat.tf.data.experimental.random_access import at
from stoker.compat.tf.data.experimental.transformations import (
    assert_cardinality,
    bucket_by_sequence_length,
    dense_to_ragged_batch,
    enumerate_dataset,
    group_by_window,
    ignore_errors,
    map_and_batch,
    parallel_interleave,
    rejection_resample,
    scan,
    shuffle_and_repeat,
    snapshot,
    take_while,
    unbatch,
    unique,
)
from stoker.compat.tf.data.experimental.writers import TFRecordWriter
from stoker.compat.tf.data.options import (
    AutoShardPolicy,
    AutotuneAlgorithm,
    AutotuneOptions,
    DistributeOptions,
    ExternalStatePolicy,
    OptimizationOptions,
    ServiceOptions,
    ThreadingOptions,
)
from stoker.compat.tf.data.readers import CsvDataset
from stoker.compat.tf.missing import missing
from stoker.dataset.tree.node import AUTOTUNE, INFINITE_CARDINALITY, SHARD_HINT, UNKNOWN_CARDINALITY

if TYPE_CHECKING:
    from stoker.compat.tf.data.experimental import service

__all__ = [
    "AUTOTUNE",
    "INFINITE_CARDINALITY",
    "SHARD_HINT",
    "UNKNOWN_CARDINALITY",
    "AutoShardPolicy",
    "AutotuneAlgorithm",
    "AutotuneOptions",
    "Counter",
    "CsvDataset",
    "DistributeOptions",
    "ExternalStatePolicy",
    "OptimizationOptions",
    "RandomDataset",
    "ServiceOptions",
    "TFRecordWriter",
    "ThreadingOptions",
    "assert_cardinality",
    "at",
    "bucket_by_sequence_length",
    "cardinality",
    "choose_from_datasets",
    "dense_to_ragged_batch",
    "enumerate_dataset",
    "from_list",
    "get_single_element",
    "get_structure",
    "group_by_window",
    "ignore_errors",
    "load",
    "map_and_batch",
    "pad_to_cardinality",
    "parallel_interleave",
    "rejection_resample",
    "sample_from_datasets",
    "save",
    "scan",
    "service",
    "shuffle_and_repeat",
    "snapshot",
    "take_while",
    "unbatch",
    "unique",
]


def __getattr__(name: str) -> Any:
    if name == "service":
        # This import takes longer than all the rest, because of grpclib.
        return importlib.import_module(f"{__name__}.service")
    raise missing("tf.data.experimental", name)
