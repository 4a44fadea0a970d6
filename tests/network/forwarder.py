"""Forward a port, as a router with NAT does: `python -m tests.network.forwarder FROM TO`."""

import asyncio
import contextlib
import sys

from stoker.wire.addresses import parse_address


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


async def main(address: str, target: str) -> None:
    """Forward until killed."""

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection(*parse_address(target))
        await asyncio.gather(_copy(reader, back), _copy(there, writer))

    async with await asyncio.start_server(forward, *parse_address(address)) as server:
        print(f"serves at {address}", flush=True)
        await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
