"""Copies of what worker processes write to their standard output and error."""

import logging
import math
import os
import re
import select
import threading
import time
from collections import deque
from typing import IO, Any

import msgspec

from stoker.service.process.logs import continues_entry, is_log_line, json_line

_REPORTED_LINES = 3

_RECENT_SECONDS = 10.0
"""Time before its end in which a process may have written why it ends: a core dump takes seconds.
What a user's function has printed before is no cause."""

_FATAL = b"Fatal Python error:"
"""Begins a dump of all threads, whose first lines name the error and the code that ran."""

_CARETS = re.compile(rb"[\s^~]*")

_MOST_BYTES = 1 << 20
"""Bytes without an end of line after which they are a line of a JSON log."""

_writing = threading.Lock()
"""Held while lines are written, so that those of several workers are not mixed."""


class LastWords:
    """The lines in which a process may have written why it ends.

    They are the last ones after its last log entry, or the first of a dump of its threads.
    """

    def __init__(self) -> None:
        self._lines: deque[tuple[float, str]] = deque(maxlen=_REPORTED_LINES)
        self._in_entry = self._in_dump = False

    def add(self, line: bytes, now: float) -> None:
        """Add a line that was written at `now`, in seconds."""
        begins_entry, begins_dump = is_log_line(line), line.startswith(_FATAL)
        if begins_entry or begins_dump:
            self._lines.clear()
            self._in_entry, self._in_dump = begins_entry, begins_dump
        self._in_entry = begins_entry or (self._in_entry and continues_entry(line))
        # A dump begins with the error and the thread that raised it; all other threads follow.
        full = self._in_dump and len(self._lines) == _REPORTED_LINES
        if not (self._in_entry or full or _CARETS.fullmatch(line)):
            self._lines.append((now, line.decode(errors="replace").strip()))

    def at(self, end: float) -> tuple[str, ...]:
        """Return the lines, if they were written shortly before `end`."""
        return tuple(line for written, line in self._lines if end - written <= _RECENT_SECONDS)


class OutputPump:
    """Copies a stream of a child to the same of this process, and keeps its last words.

    It uses descriptors, not `sys.stderr`: a daemon thread that holds the lock of `sys.stderr`
    makes the interpreter abort at exit.

    Args:
        source: the stream.
        descriptor: 1 or 2, to copy to.
        pid: of the child.
        as_json: write a line that is no JSON object as the message of a record. What Python or a
            user's function prints must not disturb the readers of a log of JSON.
    """

    def __init__(self, source: IO[bytes], descriptor: int, pid: int, *, as_json: bool) -> None:
        self._source = source
        self._descriptor = descriptor
        self._pid = pid
        self._as_json = as_json
        self._wake_reader, self._wake_writer = os.pipe()
        self._words = LastWords()
        self._ended = math.inf
        self._finished = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="stoker-output", daemon=True)
        self._thread.start()

    def finish(self) -> tuple[str, ...]:
        """Stop the thread, even if a grandchild keeps it open, and return the last words."""
        with self._finished:
            if not self._source.closed:
                # The end of the stream comes after the last words, if no grandchild has it open.
                self._thread.join(timeout=1.0)
                os.write(self._wake_writer, b"\0")
                self._thread.join()
                self._source.close()
                os.close(self._wake_reader)
                os.close(self._wake_writer)
        return self._words.at(self._ended)

    def _run(self) -> None:
        waiting = select.poll()
        waiting.register(self._source, select.POLLIN)
        waiting.register(self._wake_reader, select.POLLIN)
        rest = b""
        while True:
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._source.fileno() not in ready:
                break
            data = os.read(self._source.fileno(), 65536)
            if not data:
                break
            # Text is copied as it comes: a progress bar has no end of line.
            if not self._as_json:
                _write(self._descriptor, data)
            *lines, rest = (rest + data).split(b"\n")
            if len(rest) > _MOST_BYTES:
                lines, rest = [*lines, rest], b""
            self._take(lines)
        self._take([rest])
        self._ended = time.monotonic()

    def _take(self, lines: list[bytes]) -> None:
        lines = [line for line in lines if line.strip()]
        if self._as_json:
            _write(self._descriptor, b"".join(self._record(line) + b"\n" for line in lines))
        now = time.monotonic()
        for line in lines:
            self._words.add(line, now)

    def _record(self, line: bytes) -> bytes:
        """Return a line that is a JSON object."""
        try:
            msgspec.json.decode(line, type=dict[str, Any])
        except msgspec.MsgspecError:
            stream = {1: "stdout", 2: "stderr"}[self._descriptor]
            text = line.decode(errors="replace").strip()
            fields = {"stream": stream, "pid": self._pid}
            return json_line(logging.INFO, __name__, text, **fields).encode()
        return line


def _write(descriptor: int, data: bytes) -> None:
    with _writing:
        while data:
            try:
                data = data[os.write(descriptor, data) :]
            except OSError:  # our stream is closed; the child must not notice
                return
