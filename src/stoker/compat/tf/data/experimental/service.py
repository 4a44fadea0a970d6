"""tf.data.experimental.service: `stoker.service` with TensorFlow's datasets and timing.

Errors are raised and elements requested when tf.data service does: see `ReadOptions`.
"""

import dataclasses
import enum
import functools
from collections.abc import Callable
from typing import Any, ParamSpec

import msgspec

from stoker import service as _service
from stoker.compat.tf.data.dataset import Dataset
from stoker.compat.tf.missing import missing
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.dataset.pickling.pickled import Pickled
from stoker.service import (
    CrossTrainerCache,
    DispatcherConfig,
    DispatchServer,
    WorkerConfig,
    WorkerServer,
    register_dataset,
)
from stoker.service.api.distribution import Distribution
from stoker.service.api.read_options import ReadOptions
from stoker.service.api.source import Distributed

P = ParamSpec("P")

__all__ = [
    "CrossTrainerCache",
    "DispatchServer",
    "DispatcherConfig",
    "ShardingPolicy",
    "WorkerConfig",
    "WorkerServer",
    "distribute",
    "from_dataset_id",
    "register_dataset",
]


class ShardingPolicy(enum.IntEnum):
    """Division of the dataset among workers: the members of TensorFlow.

    stoker's own policies are members of `stoker.service.ShardingPolicy` only; every function
    accepts both enumerations.
    """

    OFF = 0
    DYNAMIC = 1
    FILE = 2
    DATA = 3
    FILE_OR_DATA = 4
    HINT = 5


def _transforming(
    function: Callable[P, Distribution],
) -> Callable[P, Callable[[StokerDataset], Dataset]]:
    @functools.wraps(function)
    def distribute(*args: P.args, **kwargs: P.kwargs) -> Callable[[StokerDataset], Dataset]:
        transformation = function(*args, **kwargs)
        timed = dataclasses.replace(transformation, options=_timed(transformation.options))
        return lambda dataset: Dataset.of(timed(dataset))

    return distribute


def _reading(function: Callable[P, StokerDataset]) -> Callable[P, Dataset]:
    @functools.wraps(function)
    def from_dataset_id(*args: P.args, **kwargs: P.kwargs) -> Dataset:
        dataset = function(*args, **kwargs)
        node = dataset.node
        assert isinstance(node, Distributed)
        # Programs for tf.data service restart workers and expect an epoch that was hardly read to
        # begin anew. (docs/decisions/019)
        options = Pickled.of(_timed(node.read_options.value))
        return Dataset._source(msgspec.structs.replace(node, read_options=options))

    return from_dataset_id


def _timed(options: ReadOptions) -> ReadOptions:
    return dataclasses.replace(options, tensorflow_timing=True)


distribute = _transforming(_service.distribute)
from_dataset_id = _reading(_service.from_dataset_id)


def __getattr__(name: str) -> Any:
    raise missing("tf.data.experimental.service", name)
