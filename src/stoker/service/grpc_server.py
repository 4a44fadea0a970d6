"""grpclib's server, with what a peer can make it raise reported instead of logged by asyncio."""

from collections.abc import Callable
from typing import Any

from grpclib.protocol import H2Protocol
from grpclib.server import Server
from h2.events import RequestReceived

from stoker.errors import WireError

Refused = Callable[[str, object], None]


class _Protocol(H2Protocol):
    """Connection that is closed by any error in what its peer sends."""

    def __init__(self, refused: Refused, *args: Any) -> None:
        super().__init__(*args)
        self._refused = refused

    def data_received(self, data: bytes) -> None:
        """Handle bytes of the peer.

        As in the base class, which hides some errors and leaves others to asyncio, and then does
        not close the connection: unknown events, and headers that are not text.
        """
        try:
            events = self.connection.feed(data)
            self.connection.flush()
            for event in events:
                _check_request(event)
                self.processor.process(event)
            if not self.connection.is_closing():
                self.connection.flush()
        except Exception as error:  # noqa: BLE001 - a peer can cause any, and harms only itself
            self._refused(_peer(self), error)
            self.processor.close("Protocol error")


def _check_request(event: Any) -> None:
    if isinstance(event, RequestReceived):
        names = {name for name, _ in event.headers or ()}
        if not names >= {":method", ":path"}:  # grpclib would log a KeyError
            raise WireError("a request without a method or a path")


def _peer(protocol: H2Protocol) -> str:
    if protocol.connection.is_closing():
        return "a peer that disconnected"
    address = protocol.connection.get_peer().addr()
    return "an unknown peer" if address is None else f"{address[0]}:{address[1]}"


class GrpcServer(Server):
    """A gRPC server.

    Args:
        refused: called with the peer's address and the reason when a connection is closed because
            of what its peer sent.
        args: as for `Server`.
        kwargs: as for `Server`.
    """

    def __init__(self, refused: Refused, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._refused = refused

    def _protocol_factory(self) -> H2Protocol:
        made = super()._protocol_factory()
        return _Protocol(self._refused, made.handler, made.config, made.h2_config)
