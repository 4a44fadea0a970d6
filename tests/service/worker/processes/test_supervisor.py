"""The supervisor over fake children: Python one-liners that speak the child's protocol."""

import logging
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from stoker.errors import AlreadyExistsError, InvalidArgumentError
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes.supervisor import Supervisor
from tests.manual_clock import ManualClock

CONFIG = WorkerConfig(dispatcher_address="localhost:1")

CONNECT = """
import json, os, socket, sys, time
parent = socket.socket(fileno=int(sys.argv[1]))
config = json.loads(parent.makefile("r").readline())["config"]
"""
SERVE = (
    CONNECT
    + """
address = f"localhost:{config['port'] or os.getpid()}"
parent.sendall(json.dumps({"address": address}).encode() + b"\\n")
"""
)
UNTIL_STOPPED = SERVE + "parent.recv(1)"
IGNORES_SIGTERM = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)\n" + UNTIL_STOPPED
DIES = SERVE + "print('too bad', file=sys.stderr); sys.exit(3)"
MISCONFIGURED = (
    CONNECT
    + """
error = {"code": "InvalidArgumentError", "message": "no such host"}
parent.sendall(json.dumps({"error": error}).encode() + b"\\n")
"""
)


@contextmanager
def supervising(
    script: str, processes: int = 1, config: WorkerConfig = CONFIG
) -> Iterator[Supervisor]:
    command = (sys.executable, "-c", script)
    clock = ManualClock()
    supervisor = Supervisor(config, processes, command=command, clock=clock)
    with clock.running():
        supervisor.start()
        try:
            yield supervisor
        finally:
            supervisor.stop()


def wait_until(condition: Callable[[], object], deadline: float = 20.0) -> None:
    end = time.monotonic() + deadline
    while not condition():
        assert time.monotonic() < end, "the condition did not come true"
        time.sleep(0.01)


def test_all_children_serve_until_stop():
    with supervising(UNTIL_STOPPED, processes=2) as supervisor:
        addresses = supervisor.wait_serving()
        assert addresses == [f"localhost:{pid}" for pid in supervisor.pids]
        assert len(set(addresses)) == 2
        pids = supervisor.pids
    assert supervisor.pids == []
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def test_a_fixed_port_counts_up_over_the_children():
    config = WorkerConfig(dispatcher_address="localhost:1", port=7000)
    with supervising(UNTIL_STOPPED, processes=2, config=config) as supervisor:
        assert supervisor.wait_serving() == ["localhost:7000", "localhost:7001"]


def test_a_killed_child_is_replaced_and_its_death_named(caplog):
    with supervising(UNTIL_STOPPED) as supervisor:
        supervisor.wait_serving()
        (pid,) = supervisor.pids
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: supervisor.pids not in ([], [pid]))
        supervisor.wait_serving()
    logged = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    death = f"worker 0 (process {pid}) was killed by SIGKILL (out of memory, or kill -9)"
    assert logged == [f"{death}; starting another in 0.5 s"]


def test_a_crash_is_logged_with_exit_code_and_last_lines(caplog):
    with supervising(DIES):
        wait_until(lambda: len(caplog.records) >= 2)
    assert any(
        "ended with exit code 3: too bad; starting another in 0.5 s" in record.getMessage()
        for record in caplog.records
    )


def test_a_process_that_cannot_be_started_is_tried_again(caplog):
    clock = ManualClock()
    supervisor = Supervisor(CONFIG, command=("/no/such/python",), clock=clock)
    with clock.running():
        supervisor.start()
        wait_until(lambda: len(caplog.records) >= 2)
        supervisor.stop()
    message = "worker 0 could not be started: [Errno 2] No such file or directory"
    assert all(record.getMessage().startswith(message) for record in caplog.records)


def test_the_childs_stderr_is_passed_on(capfd, caplog):
    with supervising(DIES):
        wait_until(lambda: any(r.levelno == logging.WARNING for r in caplog.records))
    assert "too bad\n" in capfd.readouterr().err


def test_a_wrong_configuration_is_not_retried():
    with supervising(MISCONFIGURED, processes=2) as supervisor:
        with pytest.raises(InvalidArgumentError, match="no such host"):
            supervisor.join()
        with pytest.raises(InvalidArgumentError, match="no such host"):
            supervisor.wait_serving()
        assert supervisor.pids == []


def test_a_child_that_ignores_sigterm_is_killed():
    with supervising(IGNORES_SIGTERM) as supervisor:
        supervisor.wait_serving()
        before = time.monotonic()
        supervisor.stop(grace=0.2)
        assert time.monotonic() - before < 5
        assert supervisor.pids == []


def test_stop_ends_a_wait_for_the_next_start(caplog):
    command = (sys.executable, "-c", DIES)
    supervisor = Supervisor(CONFIG, command=command, clock=ManualClock())
    supervisor.start()
    wait_until(lambda: any(r.levelno == logging.WARNING for r in caplog.records))
    supervisor.stop()
    supervisor.join()
    assert supervisor.pids == []


def test_stop_is_final_and_start_and_stop_can_be_repeated():
    with supervising(UNTIL_STOPPED) as supervisor:
        supervisor.start()
        supervisor.wait_serving()
        assert len(supervisor.pids) == 1
        supervisor.stop()
        supervisor.stop()
        supervisor.start()
        assert supervisor.pids == []


def test_less_than_one_process_is_refused():
    with pytest.raises(InvalidArgumentError, match="at least 1, got 0"):
        Supervisor(CONFIG, 0)


def test_a_death_is_reported_before_the_lease_ends():
    with DispatchServer(worker_timeout_ms=600_000) as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        supervisor = Supervisor(config, clock=ManualClock())
        supervisor.start()
        try:
            supervisor.wait_serving()
            assert dispatcher.num_workers() == 1
            os.kill(supervisor.pids[0], signal.SIGKILL)
            wait_until(lambda: dispatcher.num_workers() == 0)
        finally:
            supervisor.stop()


REFUSED = (
    SERVE
    + """
error = {"code": "AlreadyExistsError", "message": "another worker serves it"}
parent.sendall(json.dumps({"error": error}).encode() + b"\\n")
sys.exit(1)
"""
)


def test_a_child_that_reports_its_refusal_ends_all():
    with supervising(REFUSED) as supervisor:
        with pytest.raises(AlreadyExistsError, match="another worker serves it"):
            supervisor.join()
        assert supervisor.pids == []
