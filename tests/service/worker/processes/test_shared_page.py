"""The page that a worker process shares with its parent."""

import os
import subprocess
import sys

import pytest

from stoker.dataset.streams.calls.call_ranges import NO_DIGEST, CallRange
from stoker.dataset.streams.calls.call_recorder import RecordedCall
from stoker.service.keys import WorkerIdentity
from stoker.service.worker.processes.shared_page import SharedPage

CHILD = """
import sys
from stoker.service.keys import WorkerIdentity
from stoker.service.worker.processes.shared_page import SharedPage
page = SharedPage(int(sys.argv[1]))
page.publish(WorkerIdentity(2**40, b"0123456789abcdef"))
page.publish(WorkerIdentity(2**41, b"a key of 16 byte"))
"""


def test_a_new_page_has_no_identity():
    page = SharedPage.create()
    assert page.identity is None
    page.close()


def test_the_parent_reads_what_a_dead_child_wrote():
    page = SharedPage.create()
    command = [sys.executable, "-c", CHILD, str(page.descriptor)]
    subprocess.run(command, pass_fds=[page.descriptor], check=True)
    assert page.identity == WorkerIdentity(2**41, b"a key of 16 byte")
    page.close()


def test_the_last_identity_can_be_read_after_close():
    page = SharedPage.create()
    page.publish(WorkerIdentity(7, bytes(16)))
    page.close()
    assert page.identity == WorkerIdentity(7, bytes(16))


def test_a_child_that_dies_while_it_publishes_leaves_the_identity_before():
    page = SharedPage.create()
    before = WorkerIdentity(7, bytes(16))
    page.publish(before)
    with pytest.raises((ValueError, IndexError)):  # a key that does not fit: half is written
        page.publish(WorkerIdentity(8, b"short"))
    assert page.identity == before
    page.close()


def test_the_parent_sees_the_counter_move_and_its_last_value():
    page = SharedPage.create()
    child = SharedPage(os.dup(page.descriptor))
    assert page.progress == 0
    child.move()
    child.move()
    assert page.progress == 2
    child.close()
    page.close()
    assert page.progress == 2
    assert page.identity is None


CALLING = """
import os, signal, sys
from stoker.service.worker.processes.shared_page import SharedPage
page = SharedPage(int(sys.argv[1]))
page.record_calls().begin(7, 3, 10, 20)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_the_parent_reads_the_calls_of_a_killed_child():
    page = SharedPage.create()
    assert page.calls == []
    command = [sys.executable, "-c", CALLING, str(page.descriptor)]
    subprocess.run(command, pass_fds=[page.descriptor], check=False)
    assert page.calls == [RecordedCall(7, CallRange(3, 10, 20), NO_DIGEST)]
    page.close()
    assert page.calls == []


def test_a_child_that_stops_has_no_calls():
    page = SharedPage.create()
    child = SharedPage(os.dup(page.descriptor))
    recorder = child.record_calls()
    recorder.begin(7, 3, 10, 20)
    assert len(page.calls) == 1
    child.stop()
    assert page.calls == []
    os.close(child.descriptor)
    page.close()


def test_close_closes_the_descriptor():
    page = SharedPage.create()
    page.close()
    try:
        os.fstat(page.descriptor)
    except OSError:
        return
    raise AssertionError("the descriptor is open")
