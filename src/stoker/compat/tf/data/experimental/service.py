"""tf.data.experimental.service: `stoker.service`, whose datasets have TensorFlow's methods."""

import functools
from collections.abc import Callable
from typing import Any, ParamSpec

from stoker import service as _service
from stoker.compat.tf.data.dataset import Dataset
from stoker.compat.tf.missing import missing
from stoker.dataset.dataset import Dataset as StokerDataset
from stoker.service import (
    CrossTrainerCache,
    DispatcherConfig,
    DispatchServer,
    ShardingPolicy,
    WorkerConfig,
    WorkerServer,
    register_dataset,
)

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


def _transforming(
    function: Callable[P, Callable[[StokerDataset], StokerDataset]],
) -> Callable[P, Callable[[StokerDataset], Dataset]]:
    @functools.wraps(function)
    def distribute(*args: P.args, **kwargs: P.kwargs) -> Callable[[StokerDataset], Dataset]:
        transformation = function(*args, **kwargs)
        return lambda dataset: Dataset.of(transformation(dataset))

    return distribute


def _reading(function: Callable[P, StokerDataset]) -> Callable[P, Dataset]:
    @functools.wraps(function)
    def from_dataset_id(*args: P.args, **kwargs: P.kwargs) -> Dataset:
        return Dataset.of(function(*args, **kwargs))

    return from_dataset_id


distribute = _transforming(_service.distribute)
from_dataset_id = _reading(_service.from_dataset_id)


def __getattr__(name: str) -> Any:
    raise missing("tf.data.experimental.service", name)
