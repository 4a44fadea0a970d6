"""Processes that have a journal open, forked from one that has imported everything."""

import gc
import multiprocessing
import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from multiprocessing.connection import Connection
from multiprocessing.context import ForkServerProcess
from typing import Any

from stoker.errors import FailedPreconditionError
from stoker.service.journal import object_store, open_journal, sqlite_store
from tests.service.journal.faulty_stores import register
from tests.service.journal.recording import OpenJournal

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["pytest", __name__])

register()


class Child:
    """A process that runs a function of this module.

    Attributes:
        process: the process.
    """

    def __init__(self, target: Callable[..., None], *args: object) -> None:
        self._receiver, sender = _CONTEXT.Pipe(duplex=False)
        self.process: ForkServerProcess = _CONTEXT.Process(target=target, args=(*args, sender))
        self.process.start()
        sender.close()

    def receive(self) -> Any:
        """Return the next message; None if the process has ended."""
        assert self._receiver.poll(30), "deadline exceeded"
        try:
            return self._receiver.recv()
        except EOFError:
            return None

    def receive_all(self) -> list[Any]:
        """Return all messages up to the end of the process."""
        found = []
        while (message := self.receive()) is not None:
            found.append(message)
        return found

    def kill(self) -> None:
        """Kill the process, and wait for its end."""
        self.process.kill()
        self.process.join()

    def close(self) -> None:
        """Kill the process and release everything."""
        self.kill()
        self.process.close()
        self._receiver.close()


def start_server() -> None:
    """Start the process from which the others are forked, so that no test seems to leak it."""
    Child(hold, "\0").close()


def hold(work_dir: str, sender: Connection) -> None:
    """Open a journal, and hold it until the process is killed."""
    try:
        OpenJournal(work_dir)
    except (FailedPreconditionError, ValueError) as error:
        sender.send(str(error))
        return
    sender.send("held")
    threading.Event().wait()


def fork_and_collect(work_dir: str, sender: Connection) -> None:
    """Fork a child that uses, closes and collects its copies, while the parent goes on."""
    journal = OpenJournal(work_dir)
    journal.commit(b"before")
    if os.fork() == 0:
        journal.append(b"of the child")
        journal.close()
        journal.store.__dict__.clear()
        gc.collect()
        os._exit(0)
    os.wait()
    journal.commit(b"after")
    sender.send(sorted(os.listdir(work_dir)))  # noqa: PTH208
    os.kill(os.getpid(), 9)


def fork_and_wait(work_dir: str, sender: Connection) -> None:
    """Fork a child that lives until the pipe has no other reader."""
    journal = OpenJournal(work_dir)
    journal.commit(b"unit")
    if os.fork() == 0:
        sender.send(os.getpid())
        threading.Event().wait()
    threading.Event().wait()


def append_for_ever(work_dir: str, seed: int, sender: Connection) -> None:
    """Append units that begin with their position, and send the positions that are durable."""
    for module in (sqlite_store, object_store):
        setattr(module, "COMPACTION_BYTES", 20_000)  # noqa: B010 - not exported there
    journal = open_journal(
        work_dir, count_units, failed=lambda error: os.abort(), durable=sender.send
    )
    history = journal.read()
    for _ in count_units(history.snapshot, history.units):
        pass
    dice = random.Random(seed)
    position = journal.position
    while True:
        for _ in range(dice.randrange(1, 40)):
            position += 1
            unit = b"%d " % position + b"x" * dice.randrange(200)
            assert journal.append(unit) == position
        limit = dice.choice([0, 10, 1_000])
        while position - journal.durable_position > limit:
            time.sleep(0.0005)


def count_units(snapshot: Iterable[bytes], units: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the number of units, after a check that each begins with its position."""
    count = int(next(iter(snapshot), b"0"))
    for unit in units:
        count += 1
        assert unit.startswith(b"%d " % count), (unit, count)
    yield b"%d" % count
