"""Calls of operators and of clients whose session is broken."""

import msgspec

from stoker.errors import ErrorRecord
from stoker.service.messages.client import ClientClose
from stoker.service.messages.session import Message
from stoker.service.messages.tasks import Versions
from stoker.service.status import Status


class GetCluster(Message, frozen=True, tag=True):
    """Get the addresses of the workers."""


class ClusterReply(Message, frozen=True, tag=True):
    """The addresses of the registered workers."""

    workers: list[str]


# `stoker doctor` asks by probes, not by a job, which would be journaled, logged and need reachable
# workers. (docs/decisions/009)
class Probe(Message, frozen=True, tag=True):
    """Get the versions and the clock of the dispatcher, and the places of its workers."""


class WorkerPlace(msgspec.Struct, frozen=True):
    """A registered worker, as it advertises itself; a `draining` one gets no more tasks."""

    worker_id: int
    address: str
    data_transfer_addresses: dict[str, str]
    versions: Versions
    draining: bool = False


class ProbeReply(Message, frozen=True, tag=True):
    """The dispatcher's range of protocol versions, its version of stoker, and its clock.

    `clock` is in seconds since 1970. `journaled`: a restarted dispatcher goes on.
    """

    protocol_min: int
    protocol_max: int
    stoker: str
    clock: float
    workers: list[WorkerPlace] = []
    journaled: bool = False


# A call, because the session is broken: until the lease ends, the client would hold its tasks.
class CloseClient(Message, frozen=True, tag=True):
    """Release a client, as `ClientClose` does; for one whose session is broken.

    `journal_id` and `key` are those of its `ClientWelcome`.
    """

    client_id: int
    journal_id: str
    key: bytes
    close: ClientClose = ClientClose()


class GetStatus(Message, frozen=True, tag=True):
    """Get the state of the service; it changes nothing.

    With `job` only that job, with its tasks; with `dataset_id` only that dataset, with its details.
    """

    job: str = ""
    dataset_id: str = ""


class StatusReply(Message, frozen=True, tag=True):
    """The state of the service."""

    status: Status


class CancelJob(Message, frozen=True, tag=True):
    """Remove a job: its tasks stop, and the next read of each of its clients raises."""

    job: str


class ForgetDataset(Message, frozen=True, tag=True):
    """Remove a registered dataset that no job reads."""

    dataset_id: str


class DrainWorker(Message, frozen=True, tag=True):
    """Let the worker at an address drain and leave."""

    worker: str


class Done(Message, frozen=True, tag=True):
    """The dispatcher has done what an operator asked for; `text` says what."""

    text: str


class Failed(Message, frozen=True, tag=True):
    """The call failed."""

    error: ErrorRecord
