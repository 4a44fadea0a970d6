"""The leak check finds each kind of leak."""

import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest

from tests.leaks import RUN_VARIABLE, leaks_since, open_resources


def test_ended_thread_is_not_a_leak():
    before = open_resources()
    thread = threading.Thread(target=lambda: None)
    thread.start()
    assert leaks_since(before) == []
    thread.join()


def test_running_thread_is_found_with_its_place():
    before = open_resources()
    stop = threading.Event()
    thread = threading.Thread(target=stop.wait, name="lingering", daemon=True)
    thread.start()
    (found,) = leaks_since(before, deadline=0.05)
    stop.set()
    thread.join()
    assert found.startswith("thread: lingering (daemon), now in ")


def test_open_descriptor_is_found(tmp_path):
    before = open_resources()
    with (tmp_path / "file").open("w"):
        (found,) = leaks_since(before, deadline=0.05)
    assert found.startswith("descriptor: ")
    assert found.endswith(str(tmp_path / "file"))


def test_shared_memory_and_temporary_files_are_found():
    before = open_resources()
    shared = Path("/dev/shm") / f"leak-{os.getpid()}"
    shared.touch()
    descriptor, name = tempfile.mkstemp(prefix="stoker")
    os.close(descriptor)
    found = leaks_since(before, deadline=0.05)
    shared.unlink()
    Path(name).unlink()
    assert found == sorted([f"segment: {shared}", f"segment: {name}"])


def test_temporary_file_of_another_run_is_no_leak():
    before = open_resources()
    descriptor, name = tempfile.mkstemp(prefix="stoker", dir=os.environ["PYTEST_DEBUG_TEMPROOT"])
    os.close(descriptor)
    try:
        assert leaks_since(before, deadline=0.05) == []
    finally:
        Path(name).unlink()


USE_SHARED_MEMORY = """
import os, sys
path = sys.argv[1]
with open(path, "w"):
    print(flush=True)
    sys.stdin.read()
os.unlink(path)
"""


@pytest.mark.parametrize("ours", [False, True])
def test_shared_memory_of_another_program_is_no_leak(ours):
    path = f"/dev/shm/leak-{os.getpid()}"
    before = open_resources()
    environment = {key: os.environ[key] for key in os.environ if ours or key != RUN_VARIABLE}
    # The shell ends at once, so that Python is no descendant of this process.
    with subprocess.Popen(
        ["sh", "-c", 'exec 3<&0; "$@" <&3 &', "sh", sys.executable, "-c", USE_SHARED_MEMORY, path],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=environment,
    ) as shell:
        assert shell.stdin is not None
        assert shell.stdout is not None
        shell.stdout.readline()
        found = leaks_since(before, deadline=0.05)
        shell.stdin.close()
        shell.stdout.read()  # until Python has ended
    segments = [line for line in found if line.startswith("segment: ")]
    assert segments == ([f"segment: {path}"] if ours else [])


def test_child_process_is_found_with_its_command():
    before = open_resources()
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
