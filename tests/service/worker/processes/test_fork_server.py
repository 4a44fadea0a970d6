"""The server that forks worker processes: what children have of their own, and deaths of each."""

import contextlib
import ctypes
import os
import random
import re
import secrets
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import stoker
from stoker.dataset.streams.measure import sampling
from stoker.errors import UnavailableError
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes import forked_process
from stoker.service.worker.processes.forked_process import UNKNOWN_STATUS, ForkServer
from stoker.service.worker.processes.process import Exit, WorkerProcess
from stoker.service.worker.processes.supervisor import Supervisor

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="macOS executes workers")

NOWHERE = WorkerConfig(dispatcher_address="localhost:1")
"""The configuration of a worker that waits for its dispatcher until it is killed."""


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def children_of(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def threads_of(pid: int | str = "self") -> int:
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true"
        time.sleep(0.01)


def ended_within(pid: int, timeout: float = 10.0) -> bool:
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([pidfd], [], [], timeout)[0])
    finally:
        os.close(pidfd)


@pytest.fixture
def forks() -> Iterator[ForkServer]:
    server = ForkServer()
    yield server
    server.close()


@contextlib.contextmanager
def started(forks: ForkServer, config: WorkerConfig = NOWHERE) -> Iterator[WorkerProcess]:
    process = WorkerProcess(config, forks=forks)
    try:
        yield process
    finally:
        process.kill()
        process.stop()


class Eight:
    """A dispatcher and 8 forked workers."""

    def __init__(self, dispatcher: DispatchServer, workers: list[WorkerProcess]) -> None:
        self.target = dispatcher.target
        self.pids = [worker.pid for worker in workers]

    def answers(self, function: Any) -> list[Any]:
        """Return the results of a call of `function` in each worker."""
        dataset = stoker.Dataset.range(1).map(lambda _: [function()])
        found = list(dataset.distribute(self.target, processing_mode="parallel_epochs"))
        assert len(found) == 8
        return [each for (each,) in found]


@pytest.fixture(scope="module")
def eight() -> Iterator[Eight]:
    forks = ForkServer()
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        workers = [WorkerProcess(config, forks=forks) for _ in range(8)]
        try:
            for worker in workers:
                worker.wait_serving()
            yield Eight(dispatcher, workers)
        finally:
            for worker in workers:
                worker.stop()
            forks.close()


def test_all_workers_are_children_of_one_server_with_one_thread(eight: Eight) -> None:
    (server,) = {parent_of(pid) for pid in eight.pids}
    assert parent_of(server) == os.getpid()
    assert threads_of(server) == 1
    assert sorted(children_of(server)) == sorted(eight.pids)
    assert all(os.getpgid(pid) == pid for pid in [server, *eight.pids])


def libraries_of(pid: int) -> set[str]:
    lines = Path(f"/proc/{pid}/maps").read_text().splitlines()
    return {line.split()[-1] for line in lines if ".so" in line}


def test_an_idle_worker_loads_nothing_that_its_server_has_not(forks: ForkServer) -> None:
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        with started(forks, config) as worker:
            worker.wait_serving()
            assert libraries_of(worker.pid) <= libraries_of(parent_of(worker.pid))


def drawn() -> list[str]:
    values: list[object] = [
        np.random.random(),  # noqa: NPY002 - the one that functions use
        np.random.default_rng().random(),
        random.random(),
        random.Random().random(),
        sampling._random.random(),
        uuid.uuid1(),
        uuid.uuid4(),
        secrets.token_hex(),
        os.getpid(),
    ]
    return [str(value) for value in values]


def test_no_two_workers_draw_the_same(eight: Eight) -> None:
    for values in zip(*eight.answers(drawn), strict=True):
        assert len(set(values)) == 8


def test_workers_have_the_same_seed_of_hashes(eight: Eight) -> None:
    assert len(set(eight.answers(lambda: hash("stoker")))) == 1


def opened() -> list[str]:
    found = []
    for link in [link for link in Path("/proc/self/fd").iterdir() if int(link.name) > 2]:
        with contextlib.suppress(OSError):
            if not (target := str(link.readlink())).startswith("anon_inode:"):
                found.append(f"{target} {link.stat().st_ino}")
    return found


def test_workers_have_no_descriptor_in_common(eight: Eight) -> None:
    by_worker = eight.answers(opened)
    everything = [each for found in by_worker for each in set(found)]
    assert all(by_worker)
    # A connection of shared memory has a descriptor at this process too, and only one worker.
    assert len(everything) == len(set(everything))


def threads_by_blas() -> int:
    before = threads_of()
    matrix = np.ones((600, 600))
    matrix @ matrix
    return threads_of() - before


def test_workers_use_as_many_blas_threads_as_other_processes(eight: Eight) -> None:
    script = "import os, numpy; print(len(os.listdir('/proc/self/task')) - 1)"
    expected = int(subprocess.run([sys.executable, "-c", script], capture_output=True).stdout)
    assert max(eight.answers(threads_by_blas)) == expected


def test_signals_reach_workers_and_leave_the_server(eight: Eight) -> None:
    server = parent_of(eight.pids[0])
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        os.kill(server, number)
    assert not ended_within(server, 0.2)
    for pid in eight.pids:
        status = Path(f"/proc/{pid}/status").read_text()
        assert re.search(r"SigBlk:\s+0+\n", status)


def from_a_pool(method: str) -> int:
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    context = multiprocessing.get_context(method)
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        return pool.submit(abs, -7).result()


@pytest.mark.parametrize("method", ["fork", "forkserver", "spawn"])
def test_functions_may_use_pools_of_processes(eight: Eight, method: str) -> None:
    dataset = stoker.Dataset.range(1).map(lambda _: from_a_pool(method))
    assert list(dataset.distribute(eight.target)) == [7]


def test_a_worker_has_the_environment_and_folder_of_its_start(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("REMOVED", "1")
    monkeypatch.setenv("CHANGED", "before")

    def of_process() -> tuple[str, str | None, str | None, str]:
        getenv = ctypes.CDLL(None).getenv
        getenv.restype = ctypes.c_char_p
        text = getenv(b"CHANGED").decode()
        removed = os.environ.get("REMOVED")
        return text, os.environ["CHANGED"], removed, str(Path("/proc/self/cwd").readlink())

    gone = tmp_path / "gone"
    gone.mkdir()
    with stoker.LocalCluster(1) as cluster:
        monkeypatch.delenv("REMOVED")
        monkeypatch.setenv("CHANGED", "after é")
        here = str(Path.cwd())
        monkeypatch.chdir(gone)
        gone.rmdir()
        cluster.add_worker()
        monkeypatch.undo()
        dataset = stoker.Dataset.range(1).map(lambda _: of_process())
        found = sorted(dataset.distribute(cluster, processing_mode="parallel_epochs"))
    assert found == [
        ("after é", "after é", None, f"{gone} (deleted)"),
        ("before", "before", "1", here),
    ]


def test_a_variable_of_the_start_of_python_has_effect(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with stoker.LocalCluster(1) as cluster:
        monkeypatch.setenv("PYTHONHASHSEED", "7")
        monkeypatch.setenv("PYTHONPATH", str(tmp_path))
        cluster.add_worker()
        cluster.add_worker()
        dataset = stoker.Dataset.range(1).map(
            lambda _: (os.getppid(), str(tmp_path) in sys.path, hash("stoker"))
        )
        found = list(dataset.distribute(cluster, processing_mode="parallel_epochs"))
    (old,) = {server for server, has_path, _ in found if not has_path}
    ((new, expected),) = {(server, seed) for server, has_path, seed in found if has_path}
    assert old != new
    script = "print(hash('stoker'))"
    assert int(subprocess.check_output([sys.executable, "-c", script])) == expected


def test_sets_of_text_have_one_order_in_all_worker_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.delenv("PYTHONHASHSEED", raising=False)
    words = tuple(f"word {number}" for number in range(50))
    dataset = stoker.Dataset.range(1).map(lambda _: " ".join(set(words)))
    orders: list[str] = []
    for is_forked in (True, False, True):
        monkeypatch.setattr(forked_process, "_is_supported", lambda given=is_forked: given)
        with stoker.LocalCluster(2) as cluster:
            orders += dataset.distribute(cluster, processing_mode="parallel_epochs")
    assert len(orders) == 6
    assert len(set(orders)) == 1


def test_executed_workers_have_the_users_seed_of_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "7")
    monkeypatch.setattr(forked_process, "_is_supported", lambda: False)
    dataset = stoker.Dataset.range(1).map(lambda _: (hash("stoker"), os.environ["PYTHONHASHSEED"]))
    with stoker.LocalCluster(1) as cluster:
        [(found, seed)] = dataset.distribute(cluster)
    script = "print(hash('stoker'))"
    assert int(subprocess.check_output([sys.executable, "-c", script])) == found
    assert seed == "7"


@pytest.mark.slow
def test_200_starts_leave_nothing_in_the_server(forks: ForkServer) -> None:
    with started(forks) as process:
        server = parent_of(process.pid)
        for _ in range(200):
            with started(forks) as other:
                assert parent_of(other.pid) == server
            assert not other.alive
        assert children_of(server) == [process.pid]
        # Its streams, the socket of requests, and two of the child.
        wait_until(lambda: len(list(Path(f"/proc/{server}/fd").iterdir())) == 6)
        assert threads_of(server) == 1


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_an_exit_is_reported_by_the_server(forks: ForkServer, number: signal.Signals) -> None:
    with started(forks) as process:
        with pytest.raises(TimeoutError, match="runs after 0 s"):
            process.wait(0)
        assert process.alive
        os.kill(process.pid, number)
        waiting = [threading.Thread(target=process.wait) for _ in range(4)]
        for thread in waiting:
            thread.start()
        for thread in waiting:
            thread.join()
        assert process.wait() == Exit(-number)
        process.terminate()


def test_an_error_at_the_start_is_raised(forks: ForkServer) -> None:
    with socket.create_server(("localhost", 0)) as taken:
        port = taken.getsockname()[1]
        with started(forks, WorkerConfig(dispatcher_address="localhost:1", port=port)) as process:
            with pytest.raises(UnavailableError, match=str(port)):
                process.wait_serving()
            assert process.wait().returncode == 1


def test_a_crash_is_reported_with_the_dump_of_faulthandler(forks: ForkServer) -> None:
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        with started(forks, config) as process:
            process.wait_serving()
            dataset = stoker.Dataset.range(1).map(lambda _: ctypes.string_at(0))
            with dataset.distribute(
                dispatcher.target, processing_mode="distributed_epoch"
            ).iterator():
                end = process.wait(30)
    assert end.returncode == -signal.SIGSEGV
    assert end.last_lines[0] == "Fatal Python error: Segmentation fault"


def test_children_live_on_without_their_server(forks: ForkServer) -> None:
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        with started(forks, config) as process:
            process.wait_serving()
            server = parent_of(process.pid)
            os.kill(server, signal.SIGKILL)
            assert ended_within(server)
            numbers = stoker.Dataset.range(10).distribute(dispatcher.target)
            assert sorted(numbers) == list(range(10))
            assert process.alive
            with started(forks, config) as other:
                other.wait_serving()
                assert parent_of(other.pid) not in (server, os.getpid())
            process.kill()
            end = process.wait(10)
    assert end.returncode == UNKNOWN_STATUS
    assert str(end) == "ended, exit status unknown (the process that forked it was killed)"


def test_a_worker_is_executed_if_its_server_is_killed_at_the_request(forks: ForkServer) -> None:
    with DispatchServer() as dispatcher:
        config = WorkerConfig(dispatcher_address=dispatcher.target)
        with started(forks) as process:
            server = parent_of(process.pid)
            os.kill(server, signal.SIGSTOP)
            found: list[WorkerProcess] = []
            starting = threading.Thread(
                target=lambda: found.append(WorkerProcess(config, forks=forks))
            )
            starting.start()
            starting.join(0.2)
            assert not found
            os.kill(server, signal.SIGKILL)
            starting.join()
        assert parent_of(found[0].pid) == os.getpid()
        found[0].wait_serving()
        assert dispatcher.num_workers() == 1
        found[0].stop()


def test_a_child_that_comes_too_late_ends(
    forks: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with started(forks) as process:
        server = parent_of(process.pid)
        os.kill(server, signal.SIGSTOP)
        monkeypatch.setattr(forked_process, "_ANSWER_SECONDS", 0.05)
        with pytest.raises(TimeoutError):
            WorkerProcess(NOWHERE, forks=forks)
        os.kill(server, signal.SIGCONT)
        monkeypatch.undo()
        with started(forks) as other:  # the server has forked the late child before
            wait_until(lambda: set(children_of(server)) == {process.pid, other.pid})


def test_workers_start_while_their_servers_are_killed() -> None:
    forks = ForkServer()
    end = threading.Event()

    def kill() -> None:
        while not end.wait(random.uniform(0.0, 0.4)):
            for server in list(forks._servers):
                server.kill()

    killing = threading.Thread(target=kill)
    killing.start()
    try:
        for _ in range(20):
            with started(forks) as process:
                assert process.alive
    finally:
        end.set()
        killing.join()
        forks.close()


def test_a_supervisor_replaces_a_worker_whose_status_is_unknown(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with DispatchServer() as dispatcher:
        supervisor = Supervisor(WorkerConfig(dispatcher_address=dispatcher.target))
        supervisor.start()
        try:
            supervisor.wait_serving()
            (pid,) = supervisor.pids
            os.kill(parent_of(pid), signal.SIGKILL)
            os.kill(pid, signal.SIGKILL)
            wait_until(lambda: supervisor.pids not in ([], [pid]))
            supervisor.wait_serving()
        finally:
            supervisor.stop()
    assert f"worker 0 (process {pid}) ended, exit status unknown" in caplog.text


PROGRAM = """
import os, signal, sys, stoker
cluster = stoker.LocalCluster(2)
servers = cluster._servers._forks._servers
if sys.argv[1] == "fork" and os.fork() == 0:
    signal.pause()
print(os.getpid(), *[server.pid for server in servers], *sorted(
    stoker.Dataset.range(1).map(lambda _: os.getpid())
    .distribute(cluster, processing_mode="parallel_epochs")
), flush=True)
signal.pause()
"""


@pytest.mark.parametrize("forked", ["fork", "alone"])
def test_server_and_children_end_with_a_program_that_is_killed(forked: str) -> None:
    """A fork of the program that lives on does not keep them."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, forked], stdout=subprocess.PIPE, start_new_session=True
    ) as program:
        assert program.stdout is not None
        try:
            pid, *others = map(int, program.stdout.readline().split())
            pidfds = [os.pidfd_open(other) for other in others]
            assert len(pidfds) == 3
            os.kill(pid, signal.SIGKILL)
            for pidfd in pidfds:
                assert select.select([pidfd], [], [], 10)[0]
                os.close(pidfd)
        finally:
            os.killpg(program.pid, signal.SIGKILL)


def test_exits_are_known_where_the_program_ignores_children(forks: ForkServer) -> None:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    try:
        with started(forks) as process:
            process.kill()
            assert process.wait(20) == Exit(-signal.SIGKILL)
            assert process.pid not in children_of(os.getpid())
        forks.close()
    finally:
        signal.signal(signal.SIGCHLD, before)


def test_a_system_without_pidfds_executes_workers(
    forks: ForkServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(os, "pidfd_open")
    with started(forks) as process:
        assert parent_of(process.pid) == os.getpid()
