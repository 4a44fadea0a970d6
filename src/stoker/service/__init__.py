"""Dispatcher, workers and clients; names and meaning as in `tf.data.experimental.service`."""

from stoker.service.config import DispatcherConfig, ShardingPolicy, WorkerConfig
from stoker.service.dispatcher.server import DispatchServer
from stoker.service.distribute import (
    distribute,
    from_dataset_id,
    register_dataset,
)
from stoker.service.read_options import CrossTrainerCache
from stoker.service.worker.server import WorkerServer

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
