"""A `Reader` in a child process, as its parent sees it."""

import os
import socket
import subprocess
import sys
from contextlib import suppress
from multiprocessing import Pipe
from typing import Any, Self

from stoker.errors import UnavailableError, from_record
from stoker.wire.transports.forking import close_in_child

_GRACE = 5.0
"""Seconds for a process to end by itself."""


class ReaderProcess:
    """A child process with a `Reader`, which needs no ``__main__`` guard.

    It dies with this process, even if this one is killed, and at the end of the ``with`` block.

    Args:
        blob: the dataset as a `Pickled`.
        hash_seed: seed of Python's hashes of text, from which the order of sets follows.
    """

    def __init__(self, blob: bytes, hash_seed: int) -> None:
        self._lifeline, lifeline = socket.socketpair()
        self._calls, calls = Pipe()
        with lifeline, calls:
            descriptors = [lifeline.fileno(), calls.fileno()]
            self._process = subprocess.Popen(
                # `-P` keeps the working directory off the child's path.
                [sys.executable, "-P", "-m", "stoker.testing.child", *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=descriptors,
                env=os.environ | {"PYTHONHASHSEED": str(hash_seed)},
                # Ctrl-C in a terminal reaches the parent alone, which then ends its children.
                process_group=0,
            )
        for ours in (self._lifeline, self._calls):
            close_in_child(ours)  # a forked process must not keep the child alive
        self._blob: bytes | None = blob

    def call(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the `Reader`.

        Raises:
            StokerError: the error of the method.
            UnavailableError: if the process has died.
        """
        try:
            if self._blob is not None:
                self._calls.send_bytes(self._blob)
                self._blob = None
            self._calls.send((method, arguments, options))
            result, error = self._calls.recv()
        except (EOFError, OSError) as lost:
            raise UnavailableError(
                "a process that read the dataset ended with the exit status "
                f"{self._process.wait()}, perhaps in a function of the dataset"
            ) from lost
        if error is not None:
            raise from_record(error)
        return result

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self._calls.close()
        if kind is None:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE)
        self._process.kill()
        self._process.wait()
        self._lifeline.close()
