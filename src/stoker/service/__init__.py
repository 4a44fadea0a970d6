"""Dispatcher, workers and clients; names and meaning as in `tf.data.experimental.service`."""

from typing import TYPE_CHECKING

from stoker.lazy_names import lazy_names

if TYPE_CHECKING:
    from stoker.service.api.distribution import distribute, from_dataset_id, register_dataset
    from stoker.service.api.read_options import CrossTrainerCache
    from stoker.service.config import DispatcherConfig, WorkerConfig
    from stoker.service.dispatcher.server import DispatchServer
    from stoker.service.rules.processing_modes import ShardingPolicy
    from stoker.service.worker.server import WorkerServer
else:
    __getattr__ = lazy_names(
        "stoker.service",
        {
            "CrossTrainerCache": "stoker.service.api.read_options",
            "DispatchServer": "stoker.service.dispatcher.server",
            "DispatcherConfig": "stoker.service.config",
            "ShardingPolicy": "stoker.service.rules.processing_modes",
            "WorkerConfig": "stoker.service.config",
            "WorkerServer": "stoker.service.worker.server",
            "distribute": "stoker.service.api.distribution",
            "from_dataset_id": "stoker.service.api.distribution",
            "register_dataset": "stoker.service.api.distribution",
        },
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


def __dir__() -> list[str]:
    return sorted(__all__)
