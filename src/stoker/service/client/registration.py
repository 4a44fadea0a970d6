"""The identity of a client, as dispatcher and workers learn it."""

from typing import Any

import msgspec

from stoker.service import messages as m
from stoker.service.client.task_cursor import TaskCursor
from stoker.service.rules.processing_modes import ShardingPolicy
from stoker.wire import frames as f


class Registration:
    """The hello of one client, as each of its sessions needs it.

    Args:
        hello: names the job and its dataset.
        now: seconds, on the clock of all later calls.

    Attributes:
        hello: the hello of the next session.
        compression: of the frames, as the dispatcher decided.
    """

    def __init__(self, hello: m.ClientHello, now: float) -> None:
        self.hello = hello
        self._made_at = now
        self.compression: str | None = None

    @property
    def done(self) -> bool:
        """True after the first welcome."""
        return self.hello.client_id is not None

    def current_hello(self, now: float, *, with_tree: bool) -> m.ClientHello:
        """Return the hello to send now; the dispatcher has the tree if the dataset is known."""
        hello = self.hello
        # An age, not a time: clocks of hosts differ. (docs/decisions/052)
        if (copied := hello.copied) is not None:
            copied = msgspec.structs.replace(copied, age=copied.age + now - self._made_at)
            hello = msgspec.structs.replace(hello, copied=copied)
        if with_tree or hello.registration is None:
            return hello
        # The digest is enough for a dispatcher that knows the dataset.
        known = msgspec.structs.replace(hello.registration, tree=b"")
        return msgspec.structs.replace(hello, registration=known)

    def update(self, **fields: Any) -> None:
        """Change fields of the hello of the next session."""
        self.hello = msgspec.structs.replace(self.hello, **fields)

    def is_forgotten(self, welcome: m.ClientWelcome) -> bool:
        """Return whether a dispatcher has admitted the client again, without its earlier tasks."""
        known = self.hello.client_id, self.hello.journal_id
        return self.done and known != (welcome.client_id, welcome.journal_id)

    def welcomed(self, welcome: m.ClientWelcome) -> None:
        """Keep the identity that the dispatcher assigned."""
        if not self.done or self.is_forgotten(welcome):
            self.compression = welcome.compression
        # A client that loses nothing is admitted again by a dispatcher that has forgotten the job.
        by_position = self.hello.parameters.processing_mode is ShardingPolicy.DETERMINISTIC
        self.update(
            client_id=welcome.client_id,
            journal_id=welcome.journal_id,
            registration=self.hello.registration if by_position else None,
            key=welcome.key,
            copied=None,
        )

    def data_hello(
        self, cursor: TaskCursor, connection: int, trainer: str, *, metered: bool
    ) -> f.Hello:
        """Return the hello to a worker.

        Args:
            cursor: the position in its task.
            connection: the number of the connection.
            trainer: the `trainer_id` of a cross-trainer cache.
            metered: as in `WindowedCredit`.
        """
        return f.Hello(
            f.PROTOCOL_MIN,
            f.PROTOCOL_MAX,
            cursor.task.reader_id,
            task_id=cursor.task.task_id,
            next_frame=cursor.next_frame,
            trainer=trainer,
            attempt=connection,
            metered=metered,
            compression=self.compression,
            key=cursor.task.key,
            consumer_index=self.hello.consumer_index,
            reports=True,
        )

    def farewell(self, close: m.ClientClose) -> m.CloseClient | None:
        """Return the call in place of a `ClientClose`; ``None`` before the first welcome."""
        hello = self.hello
        if hello.client_id is None:
            return None
        return m.CloseClient(hello.client_id, hello.journal_id, hello.key, close)
