"""tf.data.experimental.service: `stoker.service`, whose datasets have TensorFlow's methods."""

from collections.abc import Callable
from typing import Any

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


def distribute(
    processing_mode: Any, service: Any, *args: Any, **kwargs: Any
) -> Callable[[StokerDataset], Dataset]:
    """Return a transformation for `Dataset.apply`; as `stoker.service.distribute`."""
    transformation = _service.distribute(processing_mode, service, *args, **kwargs)
    return lambda dataset: Dataset.of(transformation(dataset))


def from_dataset_id(
    processing_mode: Any, service: Any, dataset_id: str, *args: Any, **kwargs: Any
) -> Dataset:
    """Read a registered dataset; as `stoker.service.from_dataset_id`."""
    dataset = _service.from_dataset_id(processing_mode, service, dataset_id, *args, **kwargs)
    return Dataset.of(dataset)


def __getattr__(name: str) -> Any:
    raise missing("tf.data.experimental.service", name)
