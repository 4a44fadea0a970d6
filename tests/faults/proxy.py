"""TCP proxies that cut, reset or swallow: the network's part in the fault tests."""

import contextlib
import socket
import struct
import threading
from collections.abc import Iterator
from types import TracebackType
from typing import Self


class CuttingProxy:
    """Passes bytes between its own port and `target`; each connection breaks after some bytes.

    Args:
        target: port on localhost; 0 until `target` is set.
        cut_after: for each connection in turn, the bytes from the target after which it is cut.

    Attributes:
        cuts: the number of connections cut.
        connections: the number of connections passed on.
        target: the port to which new connections lead.
    """

    def __init__(self, target: int, cut_after: Iterator[int]) -> None:
        self.cuts = self.connections = 0
        self._flowing = threading.Event()
        self._flowing.set()
        self._swallowing = False
        self.target = target
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

    def pause(self) -> None:
        """Read no more from the target until `resume`, so that it can send no more."""
        self._flowing.clear()

    def resume(self) -> None:
        """End `pause`."""
        self._flowing.set()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.resume()
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
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets |= {client, server}
                self.connections += 1
            self._spawn(self._pump, client, server, None)
            self._spawn(self._pump, server, client, next(self._cut_after))

    def _pump(self, source: socket.socket, sink: socket.socket, limit: int | None) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if limit is not None:
                    self._flowing.wait()
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


class Forwarder:
    """Passes bytes between its own port and `target`, unless told otherwise.

    Args:
        target: port on localhost; 0 while there is none, which resets new connections.

    Attributes:
        target: the port to which new connections lead.
        resets: reset each new connection as soon as it is accepted, as a port forwarder does whose
            target is away.
        swallows: acknowledge all bytes and pass nothing, not even the end of a connection.
        swallows_replies: the same for bytes from `target` alone.
        delay: seconds by which bytes are passed on later, in both directions.
        rate: about the most bytes a second that are passed on from `target`; 0: as fast as it can.
        accepted: the number of connections accepted.
    """

    def __init__(self, target: int = 0) -> None:
        self.resets = self.swallows = self.swallows_replies = False
        self.accepted = 0
        self.delay = 0.0
        self.rate = 0
        self.target = target
        self._closing = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._sockets: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Where clients connect."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def address(self) -> str:
        """Where clients connect, with the host."""
        return f"localhost:{self.port}"

    def heal(self) -> None:
        """End all faults; reset connections if some have missed bytes."""
        swallowed = self.swallows or self.swallows_replies
        self.resets = self.swallows = self.swallows_replies = False
        self.delay = 0.0
        if swallowed:
            self.cut()

    def cut(self) -> None:
        """Reset all open connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, set()
        for each in sockets:
            _reset(each)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        _shut(self._listener)
        self._closing.set()
        self._threads[0].join()
        self.cut()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.accepted += 1
            if self.resets or not self.target:
                _reset(client)
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self.target))
            except OSError:
                _reset(client)
                continue
            with self._lock:
                self._sockets |= {client, server}
            self._threads = [thread for thread in self._threads if thread.is_alive()]
            for source, sink, replies in ((client, server, False), (server, client, True)):
                thread = threading.Thread(target=self._pump, args=(source, sink, replies))
                self._threads.append(thread)
                thread.start()

    def _pump(self, source: socket.socket, sink: socket.socket, replies: bool) -> None:
        swallowed = False
        with contextlib.suppress(OSError):
            # Else the second of two small messages waits 40 ms for the delayed acknowledgement.
            sink.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while data := source.recv(65536):
                if self.delay:
                    self._closing.wait(self.delay)
                if self.rate and replies:
                    self._closing.wait(len(data) / self.rate)
                # Nothing is passed on after a gap: that would be another fault.
                swallowed = swallowed or self._swallowing(replies)
                if not swallowed:
                    sink.sendall(data)
        _shut(source)
        if not swallowed and not self._swallowing(replies):
            _shut(sink)
            with self._lock:
                self._sockets -= {source, sink}

    def _swallowing(self, replies: bool) -> bool:
        return self.swallows or (replies and self.swallows_replies)


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        # Not close alone: another thread may be receiving on it.
        sock.shutdown(socket.SHUT_RD)
    sock.close()


def _shut(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
