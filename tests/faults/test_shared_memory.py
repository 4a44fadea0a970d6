"""Shared memory whose processes are killed, forked, greedy or somebody else's."""

import contextlib
import gc
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

if sys.platform != "linux":
    pytest.skip("memfd is Linux's", allow_module_level=True)

import stoker
from stoker.errors import UnavailableError
from stoker.service import DispatchServer, WorkerConfig
from stoker.service.worker.processes.process import WorkerProcess
from stoker.wire.frames import Frame, Ready
from stoker.wire.transports import Connection
from stoker.wire.transports.shm import SHM, Segments, ShmTransport
from tests.wire.pairs import meets, shared_mappings

pytestmark = pytest.mark.timeout(120)

MIB = 1 << 20


@pytest.fixture
def pool() -> Iterator[Segments]:
    pool = Segments(64 * MIB)
    yield pool
    pool.close()


class Serving:
    """A listener and its accepted connections."""

    def __init__(self, pool: Segments) -> None:
        self.accepted: queue.Queue[Connection] = queue.Queue()
        self.listener = ShmTransport(pool).listen("", 0, self.accepted.put)
        self.address = self.listener.address

    def next(self) -> Connection:
        return self.accepted.get(timeout=30)


@pytest.fixture
def serving(pool: Segments) -> Iterator[Serving]:
    serving = Serving(pool)
    yield serving
    serving.listener.close()


@contextlib.contextmanager
def process(code: str, *arguments: str, **options: Any) -> Iterator["subprocess.Popen[str]"]:
    """Another Python, killed at the end if it is still there."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        **options,
    )
    with started:
        try:
            yield started
        finally:
            started.kill()


def said(child: "subprocess.Popen[str]") -> str:
    assert child.stdout is not None
    return child.stdout.readline().strip()


def tell(child: "subprocess.Popen[str]") -> None:
    assert child.stdin is not None
    child.stdin.write("\n")
    child.stdin.flush()


CLIENT = """
import sys, numpy as np
from stoker.wire.frames import Frame, Ready
from stoker.wire.transports.shm import SHM
connection = SHM.connect(sys.argv[1], 30)
kept = [element for _ in range(5) for element in connection.receive(30).elements]
print(*(int(array.max()) for array in kept), flush=True)
sys.stdin.readline()
"""

WORKER = """
import sys, time, numpy as np
from stoker.wire.frames import Frame
from stoker.wire.transports.shm import Segments, ShmTransport
pool = Segments(64 << 20)
def serve(connection):
    for n in range(5):
        mine = pool.allocate((1 << 20,), np.uint8)
        mine[:] = n
        connection.send(Frame(n, [mine, np.full(1 << 20, n, np.uint8)]))
    connection.receive()
print(ShmTransport(pool).listen("", 0, serve).address, flush=True)
sys.stdin.readline()
"""


def send_five(connection: Connection) -> None:
    for n in range(5):
        connection.send(Frame(n, [np.full(MIB, n, np.uint8)]))


def test_a_killed_client_costs_only_its_borrowed_memory(pool: Segments, serving: Serving) -> None:
    with process(CLIENT, serving.address) as child:
        connection = serving.next()
        send_five(connection)
        assert said(child) == "0 1 2 3 4"
        assert pool.statistics()["lent_bytes"] == 5 * MIB
        child.send_signal(signal.SIGKILL)
        with pytest.raises(UnavailableError, match="disconnected"):
            connection.receive(30)
        connection.close()
    statistics = pool.statistics()
    assert statistics["lent_bytes"] == 0
    assert statistics["retired_bytes"] == 5 * MIB
    with process(CLIENT, serving.address) as child:
        send_five(serving.next())
        assert said(child) == "0 1 2 3 4"


def test_repeatedly_killed_clients_never_exhaust_the_pool(pool: Segments, serving: Serving) -> None:
    for n in range(60):
        near = SHM.connect(serving.address, 30)
        far = serving.next()
        # Where the pool is full, the socket has to be read.
        sender = threading.Thread(target=send_five, args=(far,))
        sender.start()
        kept = [near.receive(30) for _ in range(5)]
        # As the kernel does for a process that is killed: nothing is given back.
        near._borrower._freed.clear()  # type: ignore[attr-defined]
        sender.join()
        near._stream._socket.shutdown(2)  # type: ignore[attr-defined]
        with pytest.raises(UnavailableError):
            far.receive(30)
        far.close()
        near.close()
        assert [int(frame.elements[0][0]) for frame in kept if isinstance(frame, Frame)] == [
            *range(5)
        ]
        assert pool.statistics()["bytes"] <= 64 * MIB, n
    del kept
    assert shared_mappings() <= 4  # the pool itself


def test_memory_of_a_killed_worker_stays_readable_and_writable() -> None:
    with process(WORKER) as child:
        connection = SHM.connect(said(child), 30)
        frames = [connection.receive(30) for _ in range(5)]
        child.send_signal(signal.SIGKILL)
        child.wait(30)
        with pytest.raises(UnavailableError, match="disconnected"):
            connection.receive(30)
    connection.close()
    for n, frame in enumerate(frames):
        assert isinstance(frame, Frame)
        for array in frame.elements:
            assert (array == n).all()
            array[:] = 100
            assert (array == 100).all()
    part = array[17:]
    del frames, frame, array
    assert shared_mappings() == 1
    del part
    assert shared_mappings() == 0


@pytest.mark.skipif(os.getuid() != 0, reason="only root can start a process of another user")
@pytest.mark.parametrize("us", ["worker", "client"])
def test_a_process_of_another_user_reads_nothing(serving: Serving, us: str) -> None:
    if us == "worker":
        code = CLIENT.replace("connection = ", "import os; os.setuid(65534); connection = ")
        with process(code, serving.address, stderr=subprocess.PIPE) as child:
            assert child.wait(30) == 1
            assert child.stderr is not None
            assert "only between processes of one user" in child.stderr.read()
    else:
        code = WORKER.replace("pool = ", "import os; os.setuid(65534); pool = ", 1)
        with process(code) as child, pytest.raises(UnavailableError, match="as user 65534"):
            SHM.connect(said(child), 30)
    assert shared_mappings() == 0
    assert serving.accepted.empty()


def in_child(work: Callable[[], bool]) -> None:
    """Runs `work` in a fork of this process; it must return True."""
    child = os.fork()
    if not child:
        code = 2
        try:
            code = 0 if work() else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_writes_of_a_forked_child_are_private(pool: Segments, serving: Serving) -> None:
    near = SHM.connect(serving.address, 30)
    far = serving.next()
    mine = pool.allocate((MIB,), np.uint8)
    mine[:] = 1
    far.send(Frame(0, [mine]))
    frame = near.receive(30)
    assert isinstance(frame, Frame)
    (yours,) = frame.elements

    def work() -> bool:
        same = bool((yours == 1).all())
        yours[:] = 9
        mine[:5] = 8
        return same and bool((yours == 9).all())

    in_child(work)
    assert (mine == 1).all()
    assert (yours == 1).all()
    yours[0] = 2
    assert mine[0] == 2
    near.close()


def test_a_childs_view_outlives_the_parents_release(pool: Segments, serving: Serving) -> None:
    near = SHM.connect(serving.address, 30)
    far = serving.next()
    far.send(Frame(0, [np.full(MIB, 1, np.uint8)]))
    frame = near.receive(30)
    assert isinstance(frame, Frame)
    (yours,) = frame.elements
    go, gone = os.pipe(), os.pipe()
    child = os.fork()
    if not child:
        code = 2
        try:
            os.write(gone[1], b"x")
            os.read(go[0], 1)
            code = 0 if (yours == 1).all() else 1
            del yours, frame
            gc.collect()
        finally:
            os._exit(code)
    os.read(gone[0], 1)
    del yours, frame
    near.send(Ready(1))
    assert far.receive(30) == Ready(1)
    statistics = pool.statistics()
    assert statistics["lent_bytes"] == 0
    assert statistics["retired_bytes"] == MIB
    for n in range(40):
        far.send(Frame(n, [np.full(MIB, 77, np.uint8)]))
        near.receive(30)
        near.send(Ready(1))
        far.receive(30)
    os.write(go[1], b"x")
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    for descriptor in (*go, *gone):
        os.close(descriptor)
    near.close()


def test_memory_received_after_a_fork_is_reused(pool: Segments, serving: Serving) -> None:
    near = SHM.connect(serving.address, 30)
    far = serving.next()
    send_five(far)
    for _ in range(5):
        near.receive(30)
        in_child(lambda: True)
    near.send(Ready(1))
    assert far.receive(30) == Ready(1)
    assert pool.statistics()["retired_bytes"] == pool.statistics()["lent_bytes"] == 0
    near.close()


def test_a_child_holds_no_socket_of_its_parents(pool: Segments, serving: Serving) -> None:
    near = SHM.connect(serving.address, 30)
    far = serving.next()

    def work() -> bool:
        with pytest.raises(UnavailableError):
            near.send(Ready(1))
        return far._stream._socket.fileno() == -1  # type: ignore[attr-defined]

    read, write = os.pipe()
    child = os.fork()
    if not child:
        # Lives on while its parent ends the connection.
        os.read(read, 1)
        os._exit(0)
    near.close()
    with pytest.raises(UnavailableError, match="disconnected"):
        far.receive(30)
    os.write(write, b"x")
    os.waitpid(child, 0)
    for descriptor in (read, write):
        os.close(descriptor)
    near = SHM.connect(serving.address, 30)
    far = serving.next()
    in_child(work)
    far.send(Ready(2))
    assert near.receive(30) == Ready(2)
    near.close()


def test_the_death_of_a_parent_is_noticed_while_its_child_lives(
    pool: Segments, serving: Serving
) -> None:
    code = CLIENT.replace("print(", "import os\nchild = os.fork() or sys.stdin.readline()\nprint(")
    with process(code, serving.address) as parent:
        connection = serving.next()
        send_five(connection)
        assert said(parent) == "0 1 2 3 4"
        parent.send_signal(signal.SIGKILL)
        with pytest.raises(UnavailableError, match="disconnected"):
            connection.receive(30)
        # Its child still waits for a line.
        assert pool.statistics()["bytes"] > 0
        tell(parent)


def test_memory_in_reference_cycles_is_freed_by_the_collector(
    pool: Segments, serving: Serving
) -> None:
    near = SHM.connect(serving.address, 30)
    far = serving.next()
    for n in range(60):
        far.send(Frame(n, [np.full(MIB, n % 256, np.uint8)]))
        frame = near.receive(30)
        assert isinstance(frame, Frame)
        cycle: list[Any] = [frame.elements[0][1:]]
        cycle.append(cycle)
        del frame
        if n % 10 == 9:
            gc.collect()
        near.send(Ready(1))
        far.receive(30)
    del cycle
    gc.collect()
    near.send(Ready(1))
    far.receive(30)
    assert pool.statistics()["lent_bytes"] == 0
    assert pool.statistics()["refused"] == 0
    near.close()


def _image(number: int) -> np.ndarray:
    return np.full((256, 256, 3), number % 251, np.uint8)


@contextlib.contextmanager
def cluster(**fields: Any) -> Iterator[tuple[str, WorkerProcess]]:
    with DispatchServer() as dispatcher:
        worker = WorkerProcess(WorkerConfig(dispatcher_address=dispatcher.target, **fields))
        try:
            worker.wait_serving()
            yield dispatcher.target, worker
        finally:
            worker.stop()


@pytest.mark.parametrize("shared", [64 * MIB, 2 * MIB, 0])
def test_a_trainer_that_keeps_everything_gets_everything(shared: int) -> None:
    dataset = stoker.Dataset.range(600).map(_image)
    with cluster(shared_memory_bytes=shared) as (target, _):
        kept = list(dataset.distribute(target))
    assert len(kept) == 600
    assert all((array == n % 251).all() for n, array in enumerate(kept))
    assert bool(shared_mappings()) == bool(shared)
    kept[3][0, 0, 0] = 200
    assert kept[3 + 251][0, 0, 0] == 3
    del kept
    gc.collect()
    assert shared_mappings() == 0


def test_batches_survive_the_kill_of_their_worker() -> None:
    dataset = stoker.Dataset.range(100_000).map(_image).batch(8)
    with cluster() as (target, worker), dataset.distribute(target).iterator() as iterator:
        kept = [next(iterator) for _ in range(20)]
        worker.kill()
    assert shared_mappings() > 0
    for n, batch in enumerate(kept):
        assert (batch[:, 0, 0, 0] == np.arange(8 * n, 8 * n + 8) % 251).all()


def test_nothing_is_mapped_when_an_epoch_is_over() -> None:
    dataset = stoker.Dataset.range(300).map(_image)
    with cluster() as (target, _):
        distributed = dataset.distribute(target)
        for _ in range(3):
            assert sum(int(array[0, 0, 0]) for array in distributed) == sum(
                n % 251 for n in range(300)
            )
        assert meets(lambda: gc.collect() >= 0 and shared_mappings() == 0)
