"""The dispatcher's state, built from records.

Only `Record.apply` changes the state, and it depends on the record alone: replaying the records
rebuilds it. Leases, sessions, assigned splits and waiting requests are volatile and kept elsewhere.
"""

from collections import Counter

from stoker.service.dispatcher.entities.entities import (
    ClientEntry,
    Iteration,
    JobEntry,
    JournalState,
    TaskEntry,
    WorkerEntry,
)
from stoker.service.dispatcher.entities.places import Places
from stoker.service.dispatcher.entities.registered import DatasetInfo, WorkerInfo


class State:
    """The recorded state of a dispatcher.

    Attributes:
        jobs_of: dataset → its jobs, if it has any.
        lost_workers: workers of a snapshot that were lost and had tasks that are known.
        local_workers: process → the workers that only its clients may be able to read.
        pages: digest → a page of listed splits.
        page_uses: digest → the number of uses of the page in the lists of iterations.
        places: the workers by their places among the configured addresses.
    """

    def __init__(self) -> None:
        self.history = JournalState()
        self.datasets: dict[str, DatasetInfo] = {}
        self.jobs_of: dict[str, set[str]] = {}
        self.workers: dict[int, WorkerEntry] = {}
        self.addresses: dict[str, int] = {}
        self.local_workers: dict[str, dict[int, WorkerEntry]] = {}
        self.jobs: dict[str, JobEntry] = {}
        self.iterations: dict[int, Iteration] = {}
        self.tasks: dict[int, TaskEntry] = {}
        self.clients: dict[int, ClientEntry] = {}
        self.clients_by_key: dict[bytes, ClientEntry] = {}
        self.pages: dict[bytes, bytes] = {}
        self.page_uses: Counter[bytes] = Counter()
        self.places = Places()
        self.lost_workers: dict[int, WorkerInfo] = {}
