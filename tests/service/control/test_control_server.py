"""Connections that a server accepts while it stops."""

import asyncio
import socket

import pytest

from stoker.service.control.control_server import ControlServer, ServedProtocol
from stoker.service.control.pending_connections import PendingConnections


@pytest.mark.parametrize("accepted", ["before", "after"])
def test_a_connection_that_is_being_accepted_is_closed(accepted: str) -> None:
    async def accept() -> None:
        loop = asyncio.get_running_loop()
        server = ControlServer({}, 60.0, lambda *_, **__: None, PendingConnections())
        await server.start(socket.create_server(("127.0.0.1", 0)))
        protocol = ServedProtocol(server) if accepted == "before" else None
        await server.stop()
        here, there = socket.socketpair()
        there.setblocking(False)
        with there:
            await loop.connect_accepted_socket(lambda: protocol or ServedProtocol(server), here)
            async with asyncio.timeout(10):
                while await loop.sock_recv(there, 1000):
                    pass

    asyncio.run(accept())
