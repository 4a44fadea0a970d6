"""The reading of a client whose stream is collected."""

import os

from stoker.dataset.streams.measure.bottleneck import Pass
from stoker.service.client.measure.latest_reading import LatestReading
from stoker.service.client.measure.reading import Reading
from stoker.service.client.measure.task_reading import TaskReading
from stoker.service.task_evidence import TaskEvidence


class _Stream:
    """A stream that has received 5 elements of one task."""

    def reading(self) -> Reading:
        task = TaskReading(worker="host:1", elements=5)
        return Reading(seconds=3.0, waited=2.0, tasks=[task])


def test_a_reading_outlives_its_stream():
    stream = _Stream()
    latest = LatestReading(stream.reading)
    assert latest.tasks()[0]["elements"] == 5
    del stream
    assert (latest.update().seconds, latest.tasks()[0]["worker"]) == (3.0, "host:1")
    assert "waited for elements for 15% of 2.0 s" in latest.bottleneck(Pass(5, 2.0, 0.3)).sentence


def test_a_forked_child_has_the_reading_of_its_parent(monkeypatch):
    stream = _Stream()
    latest = LatestReading(stream.reading)
    before = latest.update()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert latest.update() is before


def test_a_stream_that_nobody_asked_has_an_empty_reading():
    latest = LatestReading(_Stream().reading)
    assert latest.update() == Reading(seconds=0.0, waited=0.0)


class _Epoch:
    """A stream of one epoch, with the evidence of its worker."""

    def __init__(self, worker: str, evidence: TaskEvidence | None) -> None:
        self.worker, self.evidence = worker, evidence

    def reading(self) -> Reading:
        task = TaskReading(worker=self.worker, evidence=self.evidence)
        return Reading(seconds=3.0, waited=2.0, tasks=[task])


def _shown(latest: LatestReading) -> str:
    return latest.tasks()[0]["worker"]


def test_an_epoch_is_shown_when_its_workers_have_reported():
    epochs = [_Epoch("a:1", TaskEvidence(seconds=9.0)), _Epoch("b:1", None), _Epoch("c:1", None)]
    first, second, third = [LatestReading(epoch.reading) for epoch in epochs]
    second.follow(first)
    assert _shown(second) == "a:1"
    third.follow(second)
    assert _shown(third) == "a:1", "the second one has ended without a report"
    epochs[2].evidence = TaskEvidence(seconds=0.1)
    assert _shown(third) == "a:1"
    epochs[2].evidence = TaskEvidence(seconds=0.1, ended=True)
    assert _shown(third) == "c:1"


def test_an_epoch_without_reports_is_not_shown_in_place_of_a_later_one():
    old, new = _Epoch("old:1", None), _Epoch("new:1", None)
    first, second = LatestReading(old.reading), LatestReading(new.reading)
    second.follow(first)
    assert _shown(second) == "new:1"
