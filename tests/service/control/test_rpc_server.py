"""Connections that a server accepts while it stops."""

import asyncio
import socket
from typing import Any

import pytest

from stoker.service.control.rpc_server import RpcServer, ServedProtocol


@pytest.mark.parametrize("accepted", ["before", "after"])
def test_a_connection_that_is_being_accepted_is_closed(accepted: str) -> None:
    async def accept() -> None:
        loop = asyncio.get_running_loop()
        no_handlers: Any = None
        server = RpcServer(no_handlers, 60.0)
        await server.start("127.0.0.1", 0)
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
