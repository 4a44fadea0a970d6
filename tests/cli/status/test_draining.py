"""`stoker drain` against servers in processes of their own."""

import pytest

from tests.cli.commands import running, running_dispatcher
from tests.cli.status.test_status import stoker_command

pytestmark = pytest.mark.timeout(120)


def test_drained_workers_leave_and_their_command_ends():
    with (
        running_dispatcher() as address,
        running("worker", "--dispatcher", address, "--processes", "2") as workers,
    ):
        first = workers.wait_for(r"worker 0 \(process \d+\) serves at (\S+)\n")[1]
        second = workers.wait_for(r"worker 1 \(process \d+\) serves at (\S+)\n")[1]
        done = stoker_command("drain", first, "--dispatcher-address", address, "--wait")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout == f"worker {first} drains\nworker {first} has left\n"
        workers.wait_for(r"worker 0 .* ended with exit code 0 after a drain; it is not restarted")
        lines = stoker_command("status", address).stdout.splitlines()
        assert [line.split()[0] for line in lines if "serving" in line] == [second]
        assert stoker_command("drain", second, "--dispatcher-address", address).returncode == 0
        assert workers.end() == 0


def test_unknown_worker_is_one_line():
    with running_dispatcher() as address:
        done = stoker_command("drain", "host:1", "--dispatcher-address", address)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "stoker: no worker is at 'host:1'; the workers are at: none\n"


def test_drain_without_a_worker_is_wrong_usage():
    assert stoker_command("drain").returncode == 2
