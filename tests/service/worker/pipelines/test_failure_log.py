import logging

import pytest

from stoker.errors import ErrorRecord
from stoker.service.worker.pipelines import failure_log
from stoker.service.worker.pipelines.failure_log import FailureLog

logger = logging.getLogger("stoker.test")


@pytest.fixture(autouse=True)
def _log_all(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "stoker.test")


def error(kind: str, element: int, site: str = "train.py:3") -> ErrorRecord:
    text = f"{kind}: element {element}"
    return ErrorRecord(
        "UserFunctionError",
        text,
        node="map",
        site=site,
        element=element,
        exception=kind,
        remote_traceback=f"Traceback\n  {text}\n",
    )


def test_first_exception_of_each_kind_is_logged_with_its_traceback(caplog):
    log = FailureLog(logger)
    for number in range(100):
        log.add(error("ValueError", number), {"task": 7})
    log.add(error("KeyError", 100), {"task": 7})
    log.add(error("ValueError", 101, "train.py:9"), {"task": 8})
    assert [record.getMessage().partition("\n")[0] for record in caplog.records] == [
        "ValueError: element 0",
        "KeyError: element 100",
        "ValueError: element 101",
    ]
    assert "Traceback" in caplog.records[0].getMessage()
    assert [record.__dict__["task"] for record in caplog.records] == [7, 7, 8]


def test_others_are_counted_once_a_minute(caplog):
    log = FailureLog(logger)
    began = log._reported_at
    for number in range(100):
        log.add(error("ValueError", number), {})
    caplog.clear()
    log.report_if_due(began + failure_log.REPORT_SECONDS - 1)
    assert not caplog.records
    log.report_if_due(began + failure_log.REPORT_SECONDS)
    log.report_if_due(began + 3 * failure_log.REPORT_SECONDS)
    assert [record.getMessage() for record in caplog.records] == [
        "99 more ValueError of `map` (train.py:3) in the last minute"
    ]


def test_many_kinds_are_not_remembered(caplog, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(failure_log, "MOST_KINDS", 10)
    log = FailureLog(logger)
    for number in range(100):
        log.add(error("ValueError", 0, f"train.py:{number}"), {})
    assert len(caplog.records) == 100
    assert len(log._others) == 10
