"""Answers to workers that ask for the files of their static shard.

The dispatcher keeps no state for them: a worker asks by position, in any order and as often as it
needs to.
"""

from typing import Any

import msgspec

from stoker.errors import InvalidArgumentError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import TaskEntry
from stoker.service.dispatcher.entities.listed_values import MAX_LISTED_BATCH, MAX_LISTED_BYTES
from stoker.service.dispatcher.modes.static.sharding import state_of

SPAN = 20_000
"""Most files of the whole list that an answer covers. Finding those of one shard decodes all of
them, 0.1 us each; workers that begin together ask for the same part of the list."""


def shard_page(task: TaskEntry, request: m.ShardRequest) -> m.ShardPage:
    """Return the next files of the shard of `task`.

    Raises:
        InvalidArgumentError: if the task has no shard, or `start` is negative.
    """
    shards, shard = state_of(task.iteration).shards, task.worker.place
    if shard is None or request.start < 0:
        raise InvalidArgumentError(
            f"task {task.task_id} asks for files of a shard from {request.start} on, which is not "
            "possible"
        )
    listed = task.iteration.values.get(request.source, ())
    first = shard + request.start * shards
    most = max(1, min(MAX_LISTED_BATCH, SPAN // shards))
    values: list[Any] = []
    size = 0
    for position in range(first, min(len(listed), first + most * shards), shards):
        value = listed[position]
        size += len(msgspec.msgpack.encode(value))
        if values and size > MAX_LISTED_BYTES:
            break
        values.append(value)
    end = first + len(values) * shards >= len(listed)
    return m.ShardPage(task.task_id, request.source, request.start, values, end)
