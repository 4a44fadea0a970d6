"""Messages in HTTP/2 streams, received within bounds: grpclib accepts 4 GiB from anyone."""

import asyncio
import struct

from grpclib.protocol import Stream

from stoker.errors import UnavailableError, WireError

MAX_HELLO_BYTES = 16 << 20
"""Most bytes of the first message of a session."""

MAX_MESSAGE_BYTES = 1 << 30
"""Most bytes of a call or of a later message of a session: they may carry a dataset."""

MAX_PENDING_BYTES = 2 << 30
"""Most bytes of messages that have arrived in part, of all peers together."""

HELLO_SECONDS = 60.0
"""A session whose first message has not arrived for this long is closed."""

STALL_SECONDS = 60.0
"""A message of which nothing more arrives for this long is given up."""

_PREFIX = struct.Struct(">?I")  # compressed, size
_PIECE_BYTES = 1 << 20


class Receiver:
    """Receives the messages of all streams of a server; use on one event loop only.

    Attributes:
        pending_bytes: the bytes of messages that have arrived in part, beyond 1 MiB each.
    """

    def __init__(self) -> None:
        self.pending_bytes = 0

    async def receive(
        self, stream: Stream, limit: int, stall_seconds: float | None = None
    ) -> bytes | None:
        """Return the next message of a stream; ``None`` at its end.

        Memory is allocated as the bytes arrive, not as the peer announces them.

        Args:
            stream: the stream.
            limit: most bytes of the message.
            stall_seconds: longest wait for a message of up to 1 MiB, or for the begin of a longer
                one; ``None`` on a session, whose peer may have nothing to say.

        Raises:
            WireError: if the message is longer than `limit` bytes, compressed or cut off.
            UnavailableError: if it stalls, or too many large messages arrive at a time.
        """
        try:
            async with asyncio.timeout(stall_seconds):
                prefix = await stream.recv_data(_PREFIX.size)
                if not prefix:
                    return None
                size = _checked_size(prefix, limit)
                if size <= _PIECE_BYTES:
                    data: bytes = await stream.recv_data(size)
                    if len(data) < size:
                        raise WireError("a control message that was cut off")
                    return data
            return await self._receive_large(stream, size)
        except TimeoutError:
            raise UnavailableError(f"no whole message arrived in {stall_seconds} s") from None
        except AssertionError as error:  # grpclib's, when a stream ends within a message
            raise WireError(f"a control message that was cut off: {error}") from error

    async def _receive_large(self, stream: Stream, size: int) -> bytes:
        pieces: list[bytes] = []
        held = 0
        try:
            while held < size:
                wanted = min(_PIECE_BYTES, size - held)
                if self.pending_bytes + wanted > MAX_PENDING_BYTES:
                    raise UnavailableError("too many large messages arrive at a time; try again")
                async with asyncio.timeout(STALL_SECONDS):
                    piece = await stream.recv_data(wanted)
                if not piece:
                    raise WireError("a control message that was cut off")
                pieces.append(piece)
                held += len(piece)
                self.pending_bytes += len(piece)
            return b"".join(pieces)
        except TimeoutError:
            raise UnavailableError(
                f"{held} of {size} bytes of a control message arrived, and none for "
                f"{STALL_SECONDS:g} s"
            ) from None
        finally:
            self.pending_bytes -= held


async def send(stream: Stream, message: bytes) -> None:
    """Send a message, as the peer's window permits."""
    await stream.send_data(_PREFIX.pack(False, len(message)) + message)


def _checked_size(prefix: bytes, limit: int) -> int:
    compressed, size = _PREFIX.unpack(prefix)
    if compressed:
        raise WireError("a compressed control message")
    if size > limit:
        raise WireError(f"a control message of {size} bytes, more than {limit} allowed")
    return int(size)
