"""The reading of a client whose stream is collected."""

import os

from stoker.dataset.bottleneck import Pass
from stoker.service.client.latest_reading import LatestReading
from stoker.service.client.reading import Reading, TaskState
from stoker.service.client.task_reading import TaskReading


class _Stream:
    """A stream that has received 5 elements of one task."""

    def reading(self) -> Reading:
        task = TaskState(worker="host:1", reading=TaskReading(elements=5))
        return Reading(seconds=3.0, waited=2.0, tasks=[task])


def test_a_reading_outlives_its_stream():
    stream = _Stream()
    latest = LatestReading(stream.reading)
    assert latest.tasks()[0]["elements"] == 5
    del stream
    assert (latest.update().seconds, latest.tasks()[0]["worker"]) == (3.0, "host:1")
    assert "waited for elements for 15% of 2.0 s" in latest.limit(Pass(5, 2.0, 0.3)).sentence


def test_a_forked_child_has_the_reading_of_its_parent(monkeypatch):
    stream = _Stream()
    latest = LatestReading(stream.reading)
    before = latest.update()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert latest.update() is before


def test_a_stream_that_nobody_asked_has_an_empty_reading():
    latest = LatestReading(_Stream().reading)
    assert latest.update() == Reading(seconds=0.0, waited=0.0)
