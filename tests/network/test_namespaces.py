"""Nothing is left of a test run that was killed."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.network.namespaces import Network
from tests.network.processes import ROOT
from tests.serving import eventually

pytestmark = [pytest.mark.network, pytest.mark.slow]

KILLED = """
import os, pathlib, signal, sys
from tests.network.namespaces import Network
from tests.network.processes import Process
with Network() as network:
    host = network.host("host")
    process = Process(host, ["-c", "import time; time.sleep(600)"], pathlib.Path(sys.argv[1]))
    print(host.namespace, process._process.pid, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_namespaces_and_processes_of_a_killed_run_are_removed(tmp_path: Path) -> None:
    words = [sys.executable, "-c", KILLED, str(tmp_path / "output")]
    killed = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=40)
    namespace, pid = killed.stdout.split()
    assert Path("/run/netns", namespace).exists()
    assert eventually(lambda: not Path("/proc", pid).exists())
    with Network():
        assert not Path("/run/netns", namespace).exists()
