"""The limit of open files of servers and their children."""

import re
import resource
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from stoker.service import DispatchServer, WorkerServer
from stoker.service.process.open_files import MOST_OPEN_FILES, raise_open_files_limit
from tests.cli.commands import running

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


@pytest.fixture(autouse=True)
def low_limit() -> Iterator[tuple[int, int]]:
    """Lower the soft limit of this process, which commands inherit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (512, hard))
    yield 512, hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def _open_files(pid: int) -> list[str]:
    limits = Path(f"/proc/{pid}/limits").read_text()
    found = re.search(r"Max open files +(\S+) +(\S+)", limits)
    assert found is not None
    return list(found.groups())


def _children(pid: int) -> list[int]:
    return [
        int(child)
        for task in Path(f"/proc/{pid}/task").glob("*/children")
        for child in task.read_text().split()
    ]


def test_servers_and_their_children_may_open_all_files(low_limit: tuple[int, int]) -> None:
    hard = str(low_limit[1])
    with running("dispatcher", "--port", "0") as dispatcher:
        [target] = dispatcher.wait_for(r"serves at (\S+)").groups()
        assert _open_files(dispatcher.pid) == [hard, hard]
        with running("worker", "--dispatcher", target) as worker:
            worker.wait_for(r"serves at")
            assert _open_files(worker.pid) == [hard, hard]
            [server] = _children(worker.pid)
            [child] = _children(server)
            assert _open_files(server) == _open_files(child) == [hard, hard]


@pytest.mark.parametrize("kind", [DispatchServer, WorkerServer])
def test_servers_in_a_users_process_raise_the_limit(
    kind: type[DispatchServer | WorkerServer], low_limit: tuple[int, int]
) -> None:
    soft, hard = low_limit
    with DispatchServer() as dispatcher:
        if kind is WorkerServer:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            WorkerServer(dispatcher_address=dispatcher.target).stop()
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)


def test_a_huge_limit_is_not_used_up(monkeypatch: pytest.MonkeyPatch) -> None:
    limits: list[tuple[int, int]] = []
    monkeypatch.setattr(
        resource, "getrlimit", lambda which: (1024, resource.RLIM_INFINITY), raising=True
    )
    monkeypatch.setattr(resource, "setrlimit", lambda which, both: limits.append(both))
    assert raise_open_files_limit() == MOST_OPEN_FILES
    assert limits == [(MOST_OPEN_FILES, resource.RLIM_INFINITY)]
