"""The leak check finds each kind of thing it is there for."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from tests.leaks import holdings, leaks_since


def test_nothing_left_is_no_leak():
    before = holdings()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    assert leaks_since(before) == []
    thread.join()


def test_a_running_thread_is_named_with_its_place():
    before = holdings()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="lingering", daemon=True)
    thread.start()
    (found,) = leaks_since(before, deadline=0.05)
    stop.set()
    thread.join()
    assert found.startswith("thread: lingering (daemon), now in ")


def test_an_open_descriptor_is_found(tmp_path):
    before = holdings()
    with (tmp_path / "file").open("w"):
        (found,) = leaks_since(before, deadline=0.05)
    assert found.startswith("descriptor: ")
    assert found.endswith(str(tmp_path / "file"))


def test_segments_in_shared_memory_and_temporary_files_of_ours_are_found():
    before = holdings()
    shared = Path("/dev/shm") / f"leak-{os.getpid()}"
    shared.touch()
    descriptor, name = tempfile.mkstemp(prefix="stoker")
    os.close(descriptor)
    found = leaks_since(before, deadline=0.05)
    shared.unlink()
    Path(name).unlink()
    assert found == sorted([f"segment: {shared}", f"segment: {name}"])


def test_a_child_process_is_named_by_its_command():
    before = holdings()
    code = "print(flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        child.stdout.readline()  # before it runs, it has no command to name
        found = leaks_since(before, deadline=0.05)
        child.communicate(b"\n")
    assert [line for line in found if line.startswith("child: ")] == [
        f"child: {child.pid}: {sys.executable} -c {code}"
    ]
