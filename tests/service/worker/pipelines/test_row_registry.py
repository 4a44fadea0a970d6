"""Rows that the tasks of a worker share."""

from typing import Any

import msgspec
import pytest

from stoker.service import messages as m
from stoker.service.worker.pipelines.row_registry import RowRegistry

START = m.TaskStart(1, 2, "data", 3, (0,), m.PositionTask(length=9), salts=[5])


def test_tasks_of_one_epoch_share_rows_until_the_last_ends():
    registry = RowRegistry()
    other = msgspec.structs.replace(START, task_id=7, iteration_id=8)
    rows = registry.acquire(START)
    assert registry.acquire(other) is rows
    registry.release(START)
    assert registry.acquire(START) is rows
    registry.release(START)
    registry.release(other)
    assert registry.acquire(START) is not rows


@pytest.mark.parametrize(
    "fields", [{"dataset_id": "other"}, {"seed": 4}, {"salts": [6]}, {"epoch": (1,)}]
)
def test_other_rows_are_those_of_another_epoch(fields: dict[str, Any]):
    registry = RowRegistry()
    rows = registry.acquire(START)
    assert registry.acquire(msgspec.structs.replace(START, **fields)) is not rows
