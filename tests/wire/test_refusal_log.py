import logging

import pytest

from stoker.wire.refusal_log import WARN_SECONDS, RefusalLog

logger = logging.getLogger("stoker.test")


def test_each_connection_is_a_debug_line_and_a_minute_one_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "stoker.test")
    times = [0.0]
    log = RefusalLog(logger, lambda: times[0])
    for number in range(1000):
        log.add(f"host:{number}", "garbage")
    log.warn_if_due()
    lines = [record for record in caplog.records if record.levelno == logging.DEBUG]
    warnings = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(lines) == 1000
    assert [record.getMessage() for record in warnings] == [
        "connection from host:0 is closed: garbage"
    ]
    caplog.clear()
    times[0] = WARN_SECONDS - 1
    log.warn_if_due()
    assert caplog.records == []
    times[0] = WARN_SECONDS
    log.warn_if_due()
    log.warn_if_due()
    assert [record.getMessage() for record in caplog.records] == [
        "connection from host:999 is closed: garbage (and 998 others since the last warning)"
    ]
