"""Targets of the table, as data."""

from typing import Literal, NamedTuple

from service.rows import (
    BARE,
    COPY_FRESH,
    LOCAL_STOKER,
    ROWS,
    SHM,
    TCP,
    TENSORFLOW,
    Subject,
    dynamic,
)


class Target(NamedTuple):
    """A figure that must be reached.

    Attributes:
        figure: its title.
        row: a key of `ROWS`.
        label: of the subject.
        baseline: the label that its figure is divided by; None where the figure itself counts.
        bound: the limit for the median over the rounds: a lower one for rates, else an upper one.
        attribute: the attribute of `measuring.Measured` that counts.
    """

    figure: str
    row: str
    label: str
    baseline: str | None
    bound: float
    attribute: Literal["rate", "milliseconds", "user_microseconds", "trainer_own"] = "rate"

    @property
    def at_least(self) -> bool:
        """True if more is better."""
        return self.attribute == "rate"


def _against_baseline(figure: str, row: str, subject: Subject, bound: float) -> Target:
    assert subject in ROWS[row].subjects
    return Target(figure, row, subject.label, subject.baseline, bound)


def _first(figure: str, row: str, subject: Subject) -> Target:
    return Target(figure, row, subject.label, subject.baseline, 1, "milliseconds")


def _user_thread(figure: str, row: str, subject: Subject, bound: float) -> Target:
    return Target(figure, row, subject.label, None, bound, "user_microseconds")


TARGETS = (
    _against_baseline("scalars, one worker process, TCP", "scalars", TCP, 1000),
    _against_baseline("1 KB batches (128 int64), TCP", "kilobytes", TCP, 50),
    _against_baseline("150 KB images, TCP", "images", TCP, 6),
    _against_baseline("150 KB images, shared memory", "images", SHM, 15),
    _against_baseline("9.6 MB batches, TCP", "batches", TCP, 2),
    _against_baseline("9.6 MB batches, shared memory", "batches", SHM, 6),
    Target("150 KB images, TCP / bare socket pair", "images", TCP.label, BARE.label, 0.85),
    Target("9.6 MB batches, TCP / bare socket pair", "batches", TCP.label, BARE.label, 0.85),
    Target("9.6 MB, shared memory / fresh memcpy", "batches", SHM.label, COPY_FRESH.label, 0.7),
    _against_baseline("scalars, busy trainer, TCP", "scalars-busy", TCP, 1),
    _against_baseline("150 KB images, busy trainer, TCP", "images-busy", TCP, 1),
    _against_baseline("150 KB images, busy trainer, shared memory", "images-busy", SHM, 3),
    _against_baseline("9.6 MB batches, busy trainer, TCP", "batches-busy", TCP, 1),
    _against_baseline("9.6 MB batches, busy trainer, shared memory", "batches-busy", SHM, 3),
    _against_baseline("the same, not read, TCP", "batches-busy-unread", TCP, 1),
    _against_baseline("the same, not read, shared memory", "batches-busy-unread", SHM, 3),
    _against_baseline("DYNAMIC over range, scalars", "scalars", dynamic(TCP), 1000),
    Target("DYNAMIC / OFF, scalars", "scalars", dynamic(TCP).label, TCP.label, 0.9),
    Target("DYNAMIC / OFF, 1 KB", "kilobytes", dynamic(TCP).label, TCP.label, 0.9),
    Target("DYNAMIC / OFF, 150 KB images", "images", dynamic(TCP).label, TCP.label, 0.9),
    Target("JPEG through stoker, TCP / local", "jpeg", TCP.label, LOCAL_STOKER.label, 0.95),
    Target(
        "JPEG through stoker, shared memory / local", "jpeg", SHM.label, LOCAL_STOKER.label, 0.95
    ),
    _first("first element after iter(), TCP", "first", TCP),
    _first("first element after iter(), shared memory", "first", SHM),
    _first("first 150 KB image after iter(), TCP", "first-image", TCP),
    _first("first 150 KB image after iter(), shared memory", "first-image", SHM),
    Target("JPEG, trainer's own memory", "jpeg", SHM.label, TENSORFLOW.label, 0.25, "trainer_own"),
    _user_thread("user's thread a scalar, µs", "scalars", TCP, 2),
    _user_thread("user's thread a kilobyte, µs", "kilobytes-unread", TCP, 2),
    _user_thread("user's thread a 9.6 MB batch, TCP, µs", "batches-unread", TCP, 100),
    _user_thread("user's thread a 9.6 MB batch, shared memory, µs", "batches-unread", SHM, 100),
)
