"""A TCP proxy that cuts connections: the network's part in the fault tests."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes between its own port and `target`; each connection breaks after some bytes.

    Args:
        target: port on localhost.
        cut_after: for each connection in turn, the bytes from the target after which it is cut.
    """

    def __init__(self, target: int, cut_after: Iterator[int]) -> None:
        self.cuts = 0
        self._swallowing = False
        self._target = target
        self._cut_after = cut_after
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._spawn(self._accept)

    @property
    def port(self) -> int:
        """Where clients connect."""
        port: int = self._listener.getsockname()[1]
        return port

    def swallow(self) -> None:
        """Drop all bytes from now on, while every connection stays open."""
        self._swallowing = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _shut(self._listener)
        with self._lock:
            sockets = list(self._sockets)
        for each in sockets:
            _shut(each)
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._spawn(self._pump, client, server, None)
            self._spawn(self._pump, server, client, next(self._cut_after))

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if self._swallowing:
                    continue
                if limit is not None and passed + len(data) > limit:
                    sink.sendall(data[: limit - passed])
                    self.cuts += 1
                    break
                sink.sendall(data)
                passed += len(data)
        _shut(source)
        _shut(sink)

    def _spawn(self, target: object, *arguments: object) -> None:
        thread = threading.Thread(target=target, args=arguments)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
