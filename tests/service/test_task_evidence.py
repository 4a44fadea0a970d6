"""Evidence of tasks: on the wire, and as the difference of two reports."""

import msgspec

from stoker.dataset.streams.measure.stage_report import StageReport
from stoker.service.client.measure.task_reading import JOINED_SECONDS, TaskReading
from stoker.service.task_evidence import TaskEvidence, decode, encode
from stoker.wire import frames as f

STAGE = StageReport(2, "map", "train.py:3", "decode", [1], 10, 80, 1.5, 2.0, 0.5, None, 1, 0.1, 0.2)


def _evidence(seconds: float, elements: int) -> TaskEvidence:
    stage = StageReport(2, "map", elements=elements, busy=seconds / 2)
    return TaskEvidence(
        seconds=seconds,
        computing=seconds / 2,
        elements=elements,
        bytes=8 * elements,
        cores=4,
        stages=[stage],
    )


def test_evidence_arrives_equal():
    evidence = TaskEvidence(
        seconds=3.0, computing=2.0, occupancy=0.5, elements=10, splits={0: 4}, stages=[STAGE]
    )
    assert decode(encode(evidence)) == evidence


def test_evidence_of_another_version_is_ignored():
    assert decode(b"\xc1") is None
    assert decode(msgspec.msgpack.encode({"seconds": "long"})) is None
    assert decode(msgspec.msgpack.encode({"seconds": 2.0, "new": [1]})) == TaskEvidence(seconds=2.0)


def test_evidence_from_before_the_client_does_not_count():
    reading = TaskReading()
    reading.reported(f.Report(encode(_evidence(100.0, 900))), 1.0, 1.0)
    assert reading.evidence is not None
    assert (reading.evidence.seconds, reading.evidence.elements) == (0.0, 0)
    reading.reported(f.Report(encode(_evidence(104.0, 930)), 7, 5), 5.0, 5.0)
    assert (reading.evidence.seconds, reading.evidence.computing) == (4.0, 2.0)
    assert (reading.evidence.elements, reading.evidence.cores) == (30, 4)
    assert (reading.evidence.stages[0].elements, reading.evidence.stages[0].busy) == (30, 2.0)
    assert (reading.chunks, reading.backlogged) == (7, 5)


def test_all_evidence_of_a_task_of_the_client_counts():
    reading = TaskReading()
    reading.reported(f.Report(encode(_evidence(JOINED_SECONDS, 20))), 0.5, 0.5)
    assert reading.evidence == reading.while_waiting == _evidence(JOINED_SECONDS, 20)


def test_a_pause_of_the_reader_has_no_weight():
    reading = TaskReading()
    reading.reported(f.Report(encode(_evidence(10.0, 20)), 10, 1), 10.0, 10.0)
    pause = msgspec.structs.replace(_evidence(10.0, 20), seconds=70.0, put_wait=60.0)
    reading.reported(f.Report(encode(pause), 30, 21), 70.0, 10.0)
    assert reading.evidence == pause
    assert (reading.while_waiting.seconds, reading.while_waiting.put_wait) == (10.0, 0.0)
    assert reading.backlog_while_waiting == 0.1
    later = msgspec.structs.replace(pause, seconds=80.0, computing=15.0)
    reading.reported(f.Report(encode(later), 50, 41), 80.0, 15.0)
    assert (reading.while_waiting.seconds, reading.while_waiting.computing) == (15.0, 10.0)
    assert reading.backlog == 41 / 50
    assert reading.backlog_while_waiting == (1 + 10) / (10 + 10)


def test_chunks_computed_in_a_pause_are_no_backlog_of_the_time_after_it():
    reading = TaskReading()
    reading.reported(f.Report(encode(_evidence(10.0, 20)), 100, 100), 10.0, 0.1)
    assert (reading.backlog, reading.backlog_while_waiting) == (1.0, 0.0)


def test_a_task_that_is_read_again_keeps_its_amounts():
    reading = TaskReading()
    reading.received(5, 50)
    reading.reported(f.Report(encode(_evidence(10.0, 20)), 10, 1), 10.0, 10.0)
    reading.join(60.0, 10.0)
    reading.reported(f.Report(encode(_evidence(70.0, 140)), 1, 0), 70.0, 20.0)
    reading.reported(f.Report(encode(_evidence(80.0, 160)), 3, 0), 80.0, 30.0)
    assert (reading.elements, reading.bytes) == (5, 50)
    assert reading.evidence is not None
    assert (reading.evidence.seconds, reading.evidence.elements) == (20.0, 40), "10 and 10 seconds"
    assert (reading.while_waiting.seconds, reading.chunks) == (20.0, 3)


def test_a_report_that_cannot_be_read_changes_nothing():
    reading = TaskReading()
    reading.reported(f.Report(b"\xc1", 3, 2), 0.5, 0.5)
    assert reading == TaskReading()
