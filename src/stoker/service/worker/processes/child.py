"""A worker process: ``python -P -m stoker.service.worker.processes.child LIFELINE PAGE``.

`fork_server` calls `main` in a forked process instead.

LIFELINE is the descriptor of one end of a socket pair. On it the parent (`process.WorkerProcess`)
sends one JSON line, a `ChildStart`; the child answers with one `Serving` line once it accepts
tasks, or with the error that prevents it. It sends another line when an operator asks it to drain,
and when it exits because the dispatcher refuses it: in both cases it is not to be restarted. When
the parent dies, its end closes and this process ends immediately. PAGE is the descriptor of a
`SharedPage`, on which the child writes its worker's id and key and the calls of user functions in
flight, and moves a counter while it runs. The output of user functions goes to the parent's
standard output and error and cannot disturb the handshake.
"""

import io
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec

from stoker.dataset.global_generators import enter_worker_process
from stoker.errors import ErrorRecord, InvalidArgumentError, StokerError, to_record
from stoker.service.config import WorkerConfig
from stoker.service.process.lifeline import die_with
from stoker.service.process.logs import LogOptions, log_to_stderr
from stoker.service.process.shutdown import StopRequest
from stoker.service.worker.processes.allocator import tune_allocator
from stoker.service.worker.processes.shared_page import SharedPage

SWITCH_SECONDS = 0.0005
"""Seconds that a thread may keep the GIL while another waits for it. With Python's 5 ms, a pipeline
that computes delays the sending of its results and the session: the first scalar arrived 38 ms
after `iter()`, with 0.5 ms after 18 ms; first batches of 1 KB after 57 and 27 ms. The worker's CPU
time per element was the same (scalars, 1 KB, 150 KB; two busy cores)."""


PROGRESS_SECONDS = 0.25
"""Interval at which the counter of the `SharedPage` moves."""


class ChildStart(msgspec.Struct, frozen=True):
    """The line that the parent sends.

    Attributes:
        config: of the worker.
        log: level and format of the log.
        environment: of a forked child, whose parent had another; ``None``: it was exec'ed.
    """

    config: WorkerConfig
    log: LogOptions
    environment: list[tuple[bytes, bytes]] | None = None


# Made before a fork: reading the annotations of `WorkerConfig` takes 1.5 ms.
_decode_start = msgspec.json.Decoder(ChildStart).decode


class Serving(msgspec.Struct, frozen=True, omit_defaults=True):
    """A line that the child sends: its address, an error, or that it drains."""

    address: str = ""
    error: ErrorRecord | None = None
    draining: bool = False


def main(lifeline: int, page_descriptor: int) -> int:
    """Serve until SIGTERM or the parent's death; return the exit status.

    After SIGTERM the worker drains; after a second one it stops immediately.
    """
    tune_allocator()
    enter_worker_process()
    # A waiting thread gets the interpreter back only after a switch interval, if another Python
    # thread computes. (docs/decisions/032)
    sys.setswitchinterval(SWITCH_SECONDS)
    page = SharedPage(page_descriptor)
    parent = socket.socket(fileno=lifeline)  # open to the end: the thread of the lifeline polls it
    line = _receive_line(parent)
    die_with(parent)

    from stoker.service import WorkerServer

    try:
        start = _decode_start(line)
        if start.environment is not None:
            os.environb.clear()
            os.environb.update(start.environment)
        log_to_stderr(start.log)
        if isinstance(sys.stdout, io.TextIOWrapper):
            # A JSON log is a pipe to the parent's. A forked child has another stream than before.
            as_json = start.log.format == "json"
            sys.stdout.reconfigure(line_buffering=as_json or sys.stdout.isatty())
        server = WorkerServer(start.config, start=False)
        server.on_registered = page.publish
        served = threading.Event()

        def draining() -> None:
            served.wait()  # the first line is the address
            _answer(parent, Serving(draining=True))

        server.on_draining = draining
        server.calls = page.record_calls()
        server.start()
    except (StokerError, OSError, ValueError) as error:
        _answer(parent, Serving(error=_record(error)))
        return 1
    # Installed here, so that a SIGTERM while it waits for the dispatcher ends the process.
    with _moving(page), StopRequest() as stop:
        _answer(parent, Serving(address=server.address))
        served.set()
        # The server may also stop by itself.
        watching = threading.Thread(target=_ask_after, args=(server.join, stop), daemon=True)
        watching.start()
        stop.wait()
        page.stop()
        stopping = threading.Thread(target=_ask_after, args=(server.stop, stop))
        stopping.start()
        stop.wait()  # for the end, or for a second SIGTERM
        server.stop(drain=False)
        stopping.join()
        watching.join()
    if server.failure is None:
        return 0
    if server.refused:
        _answer(parent, Serving(error=to_record(server.failure)))
    sys.stderr.write(f"{server.failure}\n")  # for the parent, which names it as the cause
    return 1


def _ask_after(wait: Callable[[], None], stop: StopRequest) -> None:
    wait()
    stop.ask()


@contextmanager
def _moving(page: SharedPage) -> Iterator[None]:
    """Move the counter of `page` on the control loop, which also sends the heartbeats."""
    from stoker.service.control.control_loop import control_loop

    control = control_loop()
    loop = control.acquire()

    def move() -> None:
        page.move()
        loop.call_later(PROGRESS_SECONDS, move)

    loop.call_soon_threadsafe(move)
    try:
        yield
    finally:
        control.release()


def _answer(parent: socket.socket, answer: Serving) -> None:
    parent.sendall(msgspec.json.encode(answer) + b"\n")


def _record(error: Exception) -> ErrorRecord:
    wrong = isinstance(error, ValueError) and not isinstance(error, StokerError)
    return to_record(InvalidArgumentError(str(error)) if wrong else error)


def _receive_line(parent: socket.socket) -> bytes:
    received = b""
    while not received.endswith(b"\n"):
        data = parent.recv(65536)
        if not data:
            raise SystemExit("the parent process ended before it sent a configuration")
        received += data
    return received


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2])))
