"""Listening sockets, and accepting on a poller."""

import errno
import logging
import socket
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, TypeAlias

from stoker.errors import UnavailableError
from stoker.wire.addresses import format_address
from stoker.wire.transports import Connection, Listener, ListenOptions, forking
from stoker.wire.transports.poller import Poller

_log = logging.getLogger(__name__)

_BACKLOG = 1024
_ATTEMPTS = 20
# The host lacks this address family, or the address is not configured.
_UNUSABLE = {errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT, errno.EPROTONOSUPPORT}
_PAUSE_SECONDS = 0.1

MakeConnection: TypeAlias = Callable[[socket.socket, Any], Connection]


def listen_on(host: str, port: int) -> list[socket.socket]:
    """Return sockets listening on one port of every address of `host`: "localhost" has two.

    Raises:
        UnavailableError: if the address is not of this host, or in use.
    """
    attempts = 1 if port else _ATTEMPTS
    for attempt in range(1, attempts + 1):
        try:
            return _listen_once(host, port)
        except OSError as error:
            # A port that was free on the first address need not be on the second.
            if error.errno == errno.EADDRINUSE and attempt < attempts:
                continue
            where = format_address(host, port)
            raise UnavailableError(
                f"cannot listen on {where}: {error}; choose another port, or 0 for any free one"
            ) from error
    raise AssertionError("unreachable")


def _listen_once(host: str, port: int) -> list[socket.socket]:
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    addresses = list(dict.fromkeys((family, address) for family, _, _, _, address in found))
    sockets: list[socket.socket] = []
    unusable: OSError | None = None
    try:
        for family, address in addresses:
            if sockets:
                port = sockets[0].getsockname()[1]
            try:
                one_family = len(addresses) > 1
                sockets.append(_listening(family, (address[0], port, *address[2:]), one_family))
            except OSError as error:
                if error.errno not in _UNUSABLE:
                    raise
                unusable = error
        if unusable is not None and not sockets:
            raise unusable
    except OSError:
        for sock in sockets:
            sock.close()
        raise
    return sockets


def _listening(family: int, address: Any, one_family: bool) -> socket.socket:
    # "::" alone also serves IPv4, unless IPv4 has a socket beside it.
    both = family == socket.AF_INET6 and not one_family and socket.has_dualstack_ipv6()
    sock = socket.create_server(address, family=family, backlog=_BACKLOG, dualstack_ipv6=both)
    sock.setblocking(False)
    return sock


class SocketListener(Listener):
    """Listener that accepts connections on a poller.

    Args:
        sockets: listening and non-blocking; owned by this object.
        address: address that clients connect to.
        make: makes the connection of an accepted socket; on OSError the socket is closed.
        options: their poller accepts; None makes a poller that is closed with the listener.
        on_close: called last when the listener is closed.
    """

    def __init__(
        self,
        sockets: list[socket.socket],
        address: str,
        make: MakeConnection,
        options: ListenOptions,
        on_close: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(address, options)
        self._sockets = sockets
        self._make = make
        self._on_close = on_close
        self._owns_poller = options.poller is None
        self._poller = options.poller or Poller(f"stoker-accept-{address}")
        for sock in sockets:
            forking.close_in_child(sock)
            self._watch(sock)

    def _watch(self, listening: socket.socket) -> None:
        with self._lock:
            if not self._closed:
                self._poller.watch(listening.fileno(), partial(self._accept_some, listening))

    def _accept_some(self, listening: socket.socket, limit: int) -> None:
        for _ in range(limit):
            try:
                with self._lock:  # `close` must not close the descriptor during the call
                    if self._closed:
                        return
                    sock, address = listening.accept()
            except BlockingIOError:
                break
            except ConnectionAbortedError:
                continue  # The client disconnected before `accept`.
            except OSError as error:
                self._accept_later(listening, error)
                return
            self._start(sock, address)
        self._watch(listening)

    def _accept_later(self, listening: socket.socket, error: OSError) -> None:
        """Pause: most likely no descriptor is left, and trying again would only use CPU."""
        _log.warning("%s cannot accept a connection: %s", self.address, error)
        timer = threading.Timer(_PAUSE_SECONDS, self._watch, (listening,))
        timer.name, timer.daemon = "stoker-accept-later", True
        try:
            timer.start()
        except RuntimeError:  # no more threads
            self._watch(listening)

    def _start(self, sock: socket.socket, address: Any) -> None:
        try:
            connection = self._make(sock, address)
        except OSError as error:
            _log.info("%s disconnected immediately: %s", address, error)
            sock.close()
            return
        try:
            self.serve(connection)
        except UnavailableError as error:
            _log.warning("%s refused a connection: %s", self.address, error)

    def close(self) -> None:
        with self._lock:
            if self._closed:
                return
            self._closed = True
            for sock in self._sockets:
                self._poller.forget(sock.fileno())
                sock.close()
        super().close()
        if self._owns_poller:
            self._poller.close()
        self._on_close()
