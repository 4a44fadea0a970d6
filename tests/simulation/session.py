"""Sessions with the simulated dispatcher, as `stoker.service.control.rpc_session` has them."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from stoker.service import messages as m
from stoker.service.control.rpc_session import FAREWELL_SECONDS
from tests.simulation.network import Link, Side, World, can_connect
from tests.simulation.process import Process

_encode = msgspec.msgpack.Encoder().encode
decode_to_dispatcher = msgspec.msgpack.Decoder(m.ToDispatcher).decode
_ADDRESS = re.compile(" at 0x[0-9a-f]+")
decode_from_dispatcher = msgspec.msgpack.Decoder(m.FromDispatcher).decode


@dataclass(frozen=True)
class Ear:
    """A listener of one side, made of two functions."""

    received: Callable[[Any], None]
    lost: Callable[[], None]


class Encoded(bytes):
    """An encoded control message that the trace shows decoded."""

    message: Any

    def __new__(cls, message: Any) -> "Encoded":
        self = super().__new__(cls, _encode(message))
        self.message = message
        return self

    def __repr__(self) -> str:
        return _ADDRESS.sub("", repr(self.message))  # the same in each run

    __str__ = __repr__


class SessionServer(Protocol):
    """The dispatcher, as a session knows it; it may restart, as another process."""

    @property
    def process(self) -> Process:
        """The process that listens, or the last one that did."""

    def accept(self, side: Side) -> None:
        """Accept a session."""

    def call(
        self, source: Process, request: m.Request, answered: Callable[[m.Reply | None], None]
    ) -> None:
        """Answer a call; ``None`` if it does not arrive or its answer is lost."""


class Session:
    """A session that reconnects whenever it breaks."""

    def __init__(
        self,
        process: Process,
        dispatcher: SessionServer,
        opened: Callable[[], None],
        received: Callable[[Any], None],
        lost: Callable[[], None],
    ) -> None:
        self._process, self._dispatcher = process, dispatcher
        self._world: World = process.world
        self._opened, self._received, self._lost = opened, received, lost
        self._side: Side | None = None
        self._closed = False
        process.after(self._world.rng.uniform(0, 0.05), self._open)

    def send(self, message: m.ToDispatcher) -> None:
        """Send `message` if the session is open."""
        if self._side is not None:
            self._side.send(Encoded(message))

    def end(self) -> None:
        """End the session for good, without a farewell."""
        self._closed = True
        if self._side is not None:
            self._side.close()
            self._side = None

    def close(self, farewell: m.Request | None) -> None:
        """End the session for good; make the call unless all messages sent have arrived."""
        if farewell is None:
            self.end()
            return
        self._closed = True
        side, self._side = self._side, None
        deadline = self._world.now + FAREWELL_SECONDS
        answered = False

        def received(data: bytes) -> None:
            nonlocal answered
            answered = isinstance(decode_from_dispatcher(data), m.ClientClosed)

        def ended() -> None:
            if not answered and self._world.now < deadline:
                delay = self._world.rng.uniform(0.01, FAREWELL_SECONDS / 4)
                self._process.after(
                    delay, lambda: self._dispatcher.call(self._process, farewell, again)
                )

        def again(reply: m.Reply | None) -> None:
            if reply is None:
                ended()

        if side is None:
            ended()
        else:  # the dispatcher ends it after `ClientClose`
            side.listener = Ear(received, ended)

    def _open(self) -> None:
        if self._closed:
            return
        target = self._dispatcher.process
        if not can_connect(self._process, target, self._world):
            self._process.after(self._world.rng.uniform(0.001, 0.3), self._broken)
            return
        link = Link(self._world, (self._process, target))
        self._side, far = link.sides
        target.run(lambda: self._dispatcher.accept(far), link)
        self._side.listener = Ear(
            lambda data: self._received(decode_from_dispatcher(data)), self._broken
        )
        self._opened()

    def _broken(self) -> None:
        self._side = None
        if not self._closed:
            self._lost()
            self._process.after(self._world.rng.uniform(0.02, 0.2), self._open)
