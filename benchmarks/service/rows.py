"""The table as data: what is measured side by side."""

from dataclasses import dataclass, replace

from service.elements import (
    BATCHES,
    IMAGES,
    JPEG,
    KILOBYTES,
    PHOTO_BATCHES,
    PHOTOS,
    SCALARS,
    Element,
)


@dataclass(frozen=True)
class Subject:
    """One line of a row: something that moves elements, or a limit of the machine.

    Attributes:
        label: its name in the row.
        system: a key of `servers.SERVERS`, if it needs one, and of `trainers.READERS`.
        transport: stoker's `data_transfer_protocol`; "local" runs the worker in the trainer.
        mode: the processing mode.
        compression: what both systems' `distribute` is told.
        against: the label it is divided by; none for peers and limits.
    """

    label: str
    system: str
    transport: str | None = None
    mode: str = "parallel_epochs"
    compression: str | None = None
    against: str | None = "tf.data service"


@dataclass(frozen=True)
class Row:
    """Subjects that are measured in turn, over the same elements.

    Attributes:
        title: what sets it apart from other rows of the element.
        workers: how many worker processes.
        reading: whether the trainer reads every byte of what it gets.
        busy: whether another Python thread of the trainer computes all the time.
        first: measure the milliseconds from ``iter()`` to the first element, not rates.
        slow: how many times as long as the others it is measured: few elements arrive.
    """

    element: Element
    subjects: tuple[Subject, ...]
    title: str = ""
    workers: int = 1
    reading: bool = True
    busy: bool = False
    first: bool = False
    slow: float = 1.0

    def subject(self, label: str) -> Subject:
        """The one of that name."""
        return next(subject for subject in self.subjects if subject.label == label)


TENSORFLOW = Subject("tf.data service", "tf.data service", against=None)
TCP = Subject("stoker, TCP", "stoker", "tcp")
SHM = Subject("stoker, shared memory", "stoker", "shm")
GRPC = Subject("stoker, gRPC", "stoker", "grpc")
IN_PROCESS = Subject("stoker, in-process", "stoker", "local")
BARE = Subject("bare socket pair", "socket pair", against=None)
COPY_FRESH = Subject("memcpy, fresh memory", "memcpy, fresh", against=None)
COPY_AGAIN = Subject("memcpy, reused memory", "memcpy, reused", against=None)


def dynamic(subject: Subject) -> Subject:
    """The same with DYNAMIC sharding."""
    against = "tf.data service, DYNAMIC" if subject.against else None
    label = f"{subject.label}, DYNAMIC"
    return replace(subject, label=label, mode="distributed_epoch", against=against)


def compressed(subject: Subject, codec: str = "AUTO") -> Subject:
    """The same, compressed."""
    against = 'tf.data service, "AUTO"' if subject.against else None
    return replace(subject, label=f'{subject.label}, "{codec}"', compression=codec, against=against)


BY_SOCKETS = (TENSORFLOW, TCP, SHM)
EVERY_WAY = (*BY_SOCKETS, GRPC, IN_PROCESS, BARE)
BOTH_MODES = (dynamic(TENSORFLOW), dynamic(TCP), dynamic(SHM))
# tf.data service's "AUTO" is always Snappy, so there is a line in which stoker does the same work.
COMPRESSED = (*map(compressed, BY_SOCKETS), compressed(TCP, "SNAPPY"))

LOCAL_STOKER = Subject("stoker, local threads", "stoker, local", against=None)
JPEG_SUBJECTS = (
    LOCAL_STOKER,
    replace(TCP, against=LOCAL_STOKER.label),
    replace(SHM, against=LOCAL_STOKER.label),
    Subject("PyTorch DataLoader, 2 processes", "DataLoader", against=LOCAL_STOKER.label),
    Subject("Grain, 2 processes", "Grain", against=LOCAL_STOKER.label),
    Subject("tf.data, local", "tf.data, local", against=None),
    replace(TENSORFLOW, against="tf.data, local"),
)

ROWS = {
    "scalars": Row(SCALARS, (*EVERY_WAY, *BOTH_MODES)),
    "kilobytes": Row(KILOBYTES, (*EVERY_WAY, *BOTH_MODES)),
    "kilobytes-unread": Row(KILOBYTES, (*BY_SOCKETS, BARE), "not read", reading=False),
    "images": Row(IMAGES, (*EVERY_WAY, COPY_FRESH, COPY_AGAIN, *BOTH_MODES)),
    "images-unread": Row(IMAGES, (*BY_SOCKETS, BARE), "not read", reading=False),
    "batches": Row(BATCHES, (*EVERY_WAY, COPY_FRESH, COPY_AGAIN)),
    "batches-unread": Row(
        BATCHES, (*BY_SOCKETS, BARE, COPY_FRESH, COPY_AGAIN), "not read", reading=False
    ),
    "scalars-busy": Row(SCALARS, BY_SOCKETS, "trainer's Python is busy", busy=True),
    "images-busy": Row(IMAGES, BY_SOCKETS, "trainer's Python is busy", busy=True),
    "batches-busy": Row(BATCHES, BY_SOCKETS, "trainer's Python is busy", busy=True),
    "batches-busy-unread": Row(
        BATCHES, BY_SOCKETS, "trainer's Python is busy, not read", reading=False, busy=True
    ),
    "images-compressed": Row(PHOTOS, COMPRESSED, "compressed"),
    "batches-compressed": Row(PHOTO_BATCHES, COMPRESSED, "compressed"),
    "scalars-2-workers": Row(SCALARS, BY_SOCKETS, "two workers", workers=2),
    "images-2-workers": Row(IMAGES, BY_SOCKETS, "two workers", workers=2),
    "batches-2-workers": Row(BATCHES, BY_SOCKETS, "two workers", workers=2),
    "first": Row(SCALARS, BY_SOCKETS, "iter() to first element", first=True),
    "first-image": Row(IMAGES, BY_SOCKETS, "iter() to first element", first=True),
    "jpeg": Row(JPEG, JPEG_SUBJECTS, slow=4.0),
}
