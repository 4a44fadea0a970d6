"""A child process: its handshake, and that it never outlives its parent."""

import contextlib
import os
import select
import signal
import subprocess
import sys

import pytest

import stoker
from stoker.dataset.streams.calls.call_ranges import UNPLACED, CallRange
from stoker.dataset.streams.calls.call_recorder import RecordedCall
from stoker.errors import UnavailableError
from stoker.service.config import WorkerConfig
from stoker.service.worker.processes.child import SWITCH_SECONDS
from stoker.service.worker.processes.process import Exit, LostCalls, WorkerProcess

CONFIG = WorkerConfig(dispatcher_address="localhost:1")

PARENT = """
import os, sys, time
from stoker.service.config import WorkerConfig
from stoker.service.worker.processes.process import WorkerProcess

CHILD = '''
import socket, sys
from stoker.service.process.lifeline import die_with
parent = socket.socket(fileno=int(sys.argv[1]))
parent.recv(65536)
die_with(parent)
parent.sendall(b'{"address": "localhost:1"}\\\\n')
%s
'''
process = WorkerProcess(
    WorkerConfig(dispatcher_address="localhost:1"), command=(sys.executable, "-c", CHILD)
)
process.wait_serving()
FORK = %r
if FORK and os.fork() == 0:
    time.sleep(600)
print(process.pid, flush=True)
time.sleep(600)
"""
IDLE = "import time; time.sleep(600)"
HOLDS_THE_GIL = "sum(range(10**14))"


def ended_within(pidfd: int, timeout: float) -> bool:
    """Return whether the process ends within `timeout` seconds; it may be any process."""
    return bool(select.select([pidfd], [], [], timeout)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="waits on a pidfd")
@pytest.mark.parametrize("child", [IDLE, HOLDS_THE_GIL])
@pytest.mark.parametrize("fork", [False, True])
def test_a_child_dies_with_a_parent_that_is_killed(child, fork):
    """It also dies if its GIL is never released or a fork of the parent stays alive."""
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT % (child, fork)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    assert parent.stdout is not None
    with parent.stdout:
        pidfd = os.pidfd_open(int(parent.stdout.readline()))
    try:
        assert not ended_within(pidfd, 0.2)
        parent.kill()
        assert ended_within(pidfd, 10)
    finally:
        with contextlib.suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
        os.close(pidfd)
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()


@pytest.mark.parametrize(
    ("ended", "words"),
    [
        (Exit(-9), "was killed by SIGKILL (out of memory, or kill -9)"),
        (Exit(-11, ("Fatal",)), "was killed by SIGSEGV (a crash in native code): Fatal"),
        (Exit(-15), "was killed by SIGTERM"),
        (Exit(-64), "was killed by SIGRTMAX"),
        (Exit(2, ("a", "b")), "ended with exit code 2: a | b"),
        (Exit(0), "ended with exit code 0"),
    ],
)
def test_an_exit_is_described_in_words(ended, words):
    assert str(ended) == words


def test_a_child_that_dies_at_start_is_reported_with_its_stderr():
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", "raise ValueError('no luck')"))
    with pytest.raises(UnavailableError, match=r"ended with exit code 1: .*ValueError: no luck"):
        process.wait_serving()
    assert process.stop().returncode == 1


def test_a_silent_child_is_given_up_after_the_timeout():
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", IDLE))
    with pytest.raises(UnavailableError, match=r"did not begin to serve within 0\.05 s"):
        process.wait_serving(timeout=0.05)
    assert process.alive
    assert process.stop().returncode == -signal.SIGTERM
    assert not process.alive


GRANDCHILD = """
import subprocess, sys
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(grandchild.pid, file=sys.stderr, flush=True)
sys.exit(1)
"""


def test_stop_returns_though_a_grandchild_keeps_stderr_open():
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", GRANDCHILD))
    (pid,) = process.wait().last_lines
    process.stop()
    os.kill(int(pid), signal.SIGKILL)


ENDS_IN_A_CALL = """
import os, signal, sys, time
from stoker.service.worker.processes.shared_page import SharedPage
for number in (signal.SIGHUP, signal.SIGQUIT):  # `nohup` and shells let programs ignore them
    signal.signal(number, signal.SIG_DFL)
recorder = SharedPage(int(sys.argv[2])).record_calls()
recorder.begin(7, 3, 10, 11)
%s
"""
IN_FLIGHT = LostCalls({7: [CallRange(3, 10, 11)]})


@pytest.mark.parametrize(
    ("end", "lost"),
    [
        *((f"os.kill(os.getpid(), {number})", IN_FLIGHT) for number in (9, 11, 6, 7)),
        *((f"os.kill(os.getpid(), {number})", LostCalls()) for number in (15, 2, 1, 3)),
        ("os._exit(1)", IN_FLIGHT),
        ("os._exit(0)", IN_FLIGHT),
    ],
)
def test_only_a_process_that_was_asked_to_end_lost_no_calls(end, lost):
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", ENDS_IN_A_CALL % end))
    process.wait()
    assert process.lost_calls() == lost
    process.stop()


def test_a_running_process_has_lost_no_calls():
    process = WorkerProcess(CONFIG, command=(sys.executable, "-c", ENDS_IN_A_CALL % IDLE))
    assert process.lost_calls() == LostCalls()
    process.stop()


@pytest.mark.parametrize(
    ("recorded", "lost"),
    [
        ([], LostCalls()),
        ([(7, (3, 4, 5), 99)], LostCalls({7: [CallRange(3, 4, 5)]}, 99)),
        ([(7, (3, 4, 5), 99), (7, (UNPLACED, 0, 1), 0)], LostCalls({7: [CallRange(3, 4, 5)]})),
        (
            [(7, (3, 4, 5), 99), (8, (3, 6, 9), 0)],
            LostCalls({7: [CallRange(3, 4, 5)], 8: [CallRange(3, 6, 9)]}),
        ),
    ],
)
def test_only_a_lonely_call_was_alone(recorded, lost):
    calls = [RecordedCall(task, CallRange(*each), digest) for task, each, digest in recorded]
    assert LostCalls.of(calls) == lost


def test_a_worker_process_lets_its_threads_take_short_turns():
    with stoker.LocalCluster(1) as cluster:
        intervals = stoker.Dataset.range(1).map(lambda _: sys.getswitchinterval())
        assert list(intervals.distribute(cluster)) == [pytest.approx(SWITCH_SECONDS)]
