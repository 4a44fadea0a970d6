"""The page that a worker process shares with its parent."""

import os
import subprocess
import sys

from stoker.service.worker.shared_page import SharedPage

CHILD = """
import sys
from stoker.service.worker.shared_page import SharedPage
SharedPage(int(sys.argv[1])).worker_id = 2**40
"""


def test_a_new_page_has_no_worker_id():
    page = SharedPage.create()
    assert page.worker_id is None
    page.close()


def test_the_parent_reads_what_a_dead_child_wrote():
    page = SharedPage.create()
    command = [sys.executable, "-c", CHILD, str(page.descriptor)]
    subprocess.run(command, pass_fds=[page.descriptor], check=True)
    assert page.worker_id == 2**40
    page.close()


def test_the_last_id_can_be_read_after_close():
    page = SharedPage.create()
    page.worker_id = 7
    page.close()
    assert page.worker_id == 7


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
    assert page.worker_id is None


def test_close_closes_the_descriptor():
    page = SharedPage.create()
    page.close()
    try:
        os.fstat(page.descriptor)
    except OSError:
        return
    raise AssertionError("the descriptor is open")
