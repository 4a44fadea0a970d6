"""The rows and lines of the table, as data."""

from dataclasses import dataclass, replace

from service.elements import (
    ARRAYS,
    BATCHES,
    CACHED_IMAGES,
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
    """One line of a row: a system that moves elements, or a limit of the machine.

    Attributes:
        label: its unique name in the row.
        system: a key of `trainers.READERS`, and of `servers.SERVERS` if it needs a server.
        transport: stoker's `data_transfer_protocol`; "local" runs the worker in the trainer.
        mode: the processing mode.
        compression: the argument of `distribute`.
        baseline: the label of the line it is divided by; None for peers and limits.
    """

    label: str
    system: str
    transport: str | None = None
    mode: str = "parallel_epochs"
    compression: str | None = None
    baseline: str | None = "tf.data service"


@dataclass(frozen=True)
class Row:
    """Subjects that are measured in turn, with the same elements.

    Attributes:
        element: the kind of element.
        subjects: the lines.
        title: the difference to other rows of the element.
        workers: the number of worker processes.
        reading: whether the trainer reads every byte of the elements.
        busy: whether another Python thread of the trainer computes all the time.
        first: whether to measure milliseconds from ``iter()`` to the first element, not rates.
        duration: measuring time relative to the other rows, for rows with few elements.
    """

    element: Element
    subjects: tuple[Subject, ...]
    title: str = ""
    workers: int = 1
    reading: bool = True
    busy: bool = False
    first: bool = False
    duration: float = 1.0

    def subject(self, label: str) -> Subject:
        """Return the subject with that label."""
        return next(subject for subject in self.subjects if subject.label == label)


TENSORFLOW = Subject("tf.data service", "tf.data service", baseline=None)
TCP = Subject("stoker, TCP", "stoker", "tcp")
SHM = Subject("stoker, shared memory", "stoker", "shm")
GRPC = Subject("stoker, gRPC", "stoker", "grpc")
IN_PROCESS = Subject("stoker, in-process", "stoker", "local")
BARE = Subject("bare socket pair", "socket pair", baseline=None)
COPY_FRESH = Subject("memcpy, fresh memory", "memcpy, fresh", baseline=None)
COPY_REUSED = Subject("memcpy, reused memory", "memcpy, reused", baseline=None)


def dynamic(subject: Subject) -> Subject:
    """Return the subject with DYNAMIC sharding."""
    baseline = "tf.data service, DYNAMIC" if subject.baseline else None
    label = f"{subject.label}, DYNAMIC"
    return replace(subject, label=label, mode="distributed_epoch", baseline=baseline)


def compressed(subject: Subject, codec: str = "AUTO") -> Subject:
    """Return the subject with compression."""
    baseline = 'tf.data service, "AUTO"' if subject.baseline else None
    return replace(
        subject, label=f'{subject.label}, "{codec}"', compression=codec, baseline=baseline
    )


BY_SOCKETS = (TENSORFLOW, TCP, SHM)
EVERY_TRANSPORT = (*BY_SOCKETS, GRPC, IN_PROCESS, BARE)
BOTH_MODES = (dynamic(TENSORFLOW), dynamic(TCP), dynamic(SHM))
# tf.data service's "AUTO" always compresses with Snappy; one line makes stoker do the same.
COMPRESSED = (*map(compressed, BY_SOCKETS), compressed(TCP, "SNAPPY"))

LOCAL_STOKER = Subject("stoker, local threads", "stoker, local", baseline=None)
JPEG_SUBJECTS = (
    LOCAL_STOKER,
    replace(TCP, baseline=LOCAL_STOKER.label),
    replace(SHM, baseline=LOCAL_STOKER.label),
    Subject("PyTorch DataLoader, 2 processes", "DataLoader", baseline=LOCAL_STOKER.label),
    Subject("Grain, 2 processes", "Grain", baseline=LOCAL_STOKER.label),
    Subject("tf.data, local", "tf.data, local", baseline=None),
    replace(TENSORFLOW, baseline="tf.data, local"),
)

ROWS = {
    "scalars": Row(SCALARS, (*EVERY_TRANSPORT, *BOTH_MODES)),
    "kilobytes": Row(KILOBYTES, (*EVERY_TRANSPORT, *BOTH_MODES)),
    "kilobytes-unread": Row(KILOBYTES, (*BY_SOCKETS, BARE), "not read", reading=False),
    "images": Row(IMAGES, (*EVERY_TRANSPORT, COPY_FRESH, COPY_REUSED, *BOTH_MODES)),
    "images-unread": Row(IMAGES, (*BY_SOCKETS, BARE), "not read", reading=False),
    "images-cached": Row(CACHED_IMAGES, BY_SOCKETS),
    "batches": Row(BATCHES, (*EVERY_TRANSPORT, COPY_FRESH, COPY_REUSED)),
    "batches-unread": Row(
        BATCHES, (*BY_SOCKETS, BARE, COPY_FRESH, COPY_REUSED), "not read", reading=False
    ),
    "arrays": Row(ARRAYS, (*BY_SOCKETS, IN_PROCESS, *BOTH_MODES)),
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
    "jpeg": Row(JPEG, JPEG_SUBJECTS, duration=4.0),
}
