"""Iterations that clients open: found, or created with their job."""

from typing import TypeAlias

from stoker.errors import FailedPreconditionError, StokerError, from_record
from stoker.service import messages as m
from stoker.service.dispatcher.commits.ledger import Ledger
from stoker.service.dispatcher.entities import entities as e
from stoker.service.dispatcher.iterations import jobs
from stoker.service.dispatcher.iterations.catalog import can_register, find_dataset, registered_id
from stoker.service.dispatcher.iterations.dataset_collector import DatasetCollector
from stoker.service.dispatcher.iterations.iterations import Iterations
from stoker.service.dispatcher.modes.modes import mode_of
from stoker.service.dispatcher.state import records as r
from stoker.service.process.logs import epoch_text

OUTDATED_SECONDS = 10.0
"""Time without clients after which a named job starts anew for a process with other functions."""


_Replaced: TypeAlias = list[tuple[e.ClientEntry, StokerError]]


class IterationOpening:
    """Find the iteration that a client asks for, or create it.

    Args:
        ledger: the state.
        iterations: runs the iterations.
        collector: removes datasets that no job needs.
        host: the host whose clock `now` is of; "": no client's.
    """

    def __init__(
        self, ledger: Ledger, iterations: Iterations, collector: DatasetCollector, host: str
    ) -> None:
        self._ledger = ledger
        self._state = ledger.state
        self._iterations = iterations
        self._collector = collector
        self._host = host

    def open(self, hello: m.ClientHello, now: float) -> tuple[e.Iteration, str] | None:
        """Return the iteration a client asks for, created if missing, and a warning for its user.

        Returns:
            ``None`` if the tree of the dataset is needed.

        Raises:
            StokerError: if the client's request is not valid or the iteration has failed.
        """
        mode = mode_of(hello.parameters)  # raises before anything is recorded
        # All checks precede the first record: a refused client leaves nothing in the journal.
        jobs.check_local(self._state, hello)
        job = self._state.jobs.get(hello.job)
        warning = ""
        requested = jobs.requested_dataset(self._state, hello)
        outdated = job is not None and self._is_outdated(job, hello, now)
        known = None if job is None else job.iterations.get(hello.epoch)
        begins = known is None or not mode_of(known.parameters).continues(known, hello)
        # An iteration that exists has passed these checks.
        if outdated or begins:
            mode.check(requested, hello)
            mode.new_state(requested, self._state.places.addresses, hello)  # raises if impossible
        if job is not None and outdated:
            registration = hello.registration
            if registration is not None and not can_register(self._state, registration):
                return None
            warning = self._end_outdated(job, hello, now)
            job = known = None
        if job is None:
            job = self._add_job(hello)
            if job is None:
                return None
        else:
            warning = jobs.check_agreement(self._state, job, hello)
            others = self._others(known, hello) if known is not None and begins else []
            # An epoch that has finished starts no task, which would need the tree.
            if known is None or begins or not known.finished:
                restored = self._restore_tree(job, hello)
                if restored is None:
                    return None
                warning = restored or warning
        again = ""
        if known is not None:
            again = mode.reopened_warning(known, hello)
            if begins:
                self._end_replaced(known, others, now)
        iteration = self._add_iteration(job, hello) if begins or known is None else known
        if iteration.error is not None:
            raise from_record(iteration.error)
        mode.check_reopened(iteration, hello)
        late = self._late(iteration, hello, now) if iteration.finished else ""
        self._iterations.opened(iteration)
        return iteration, "; ".join(filter(None, [warning, again, late]))

    def _add_job(self, hello: m.ClientHello) -> e.JobEntry | None:
        """Return a new job; ``None`` if the tree of its dataset is needed."""
        seeds, dataset_id = jobs.requested_dataset(self._state, hello).seeds, hello.dataset_id
        if hello.registration is not None:
            dataset_id = registered_id(self._ledger, hello.registration, kept=False)
        if not dataset_id:
            return None
        self._ledger.commit(r.JobAdded(hello.job, hello.named, dataset_id, hello.parameters, seeds))
        return self._state.jobs[hello.job]

    def _end_replaced(self, iteration: e.Iteration, others: _Replaced, now: float) -> None:
        """End an iteration with its clients, before another one of its epoch begins."""
        for client, error in others:
            self._iterations.replace_client(client, error, now)
        self._iterations.end(iteration)

    def _others(self, iteration: e.Iteration, hello: m.ClientHello) -> _Replaced:
        """Return the clients of an iteration that another one replaces, and their errors.

        Raises:
            FailedPreconditionError: if one of them reads on.
        """
        sharing = mode_of(iteration.parameters).sharing
        others: _Replaced = []
        for client in iteration.clients.values():
            if (error := sharing.successor_error(client, hello)) is None:
                raise FailedPreconditionError(
                    f"epoch {epoch_text(hello.epoch)} of job {hello.job!r} is read with another "
                    "seed: give the same Options(seed=...) in all processes, resume all of them "
                    "from states of one run, or use another job_name"
                )
            others.append((client, error))
        return others

    def _add_iteration(self, job: e.JobEntry, hello: m.ClientHello) -> e.Iteration:
        iteration_id, seed = self._ledger.new_id(), job.added.seeds.seed
        if seed is None:
            seed = self._ledger.new_seed()
        # The dataset of the job, which may be that of another client.
        dataset, addresses = self._state.datasets[job.dataset_id], self._state.places.addresses
        state = mode_of(job.added.parameters).new_state(dataset, addresses, hello)
        self._ledger.commit(r.IterationAdded(iteration_id, hello.job, hello.epoch, seed, state))
        return self._state.iterations[iteration_id]

    # No clocks of different hosts are compared: the hello carries the age of the copy.
    # (docs/decisions/052)
    def _late(self, iteration: e.Iteration, hello: m.ClientHello, now: float) -> str:
        """Return the warning for a client that opens an iteration that has ended, or "".

        Raises:
            FailedPreconditionError: if its copy of the dataset was made after the end.
        """
        if hello.named:
            first = not any(hello.epoch) or hello.copied is not None
            return _read_by_others(hello.job, hello.epoch) if first else ""
        if (copied := hello.copied) is None:
            return ""
        same_clock = copied.host and copied.host == self._host
        made = copied.at if same_clock else now - copied.age
        if self._iterations.ended_before(iteration, made):
            raise FailedPreconditionError(_made_too_late(hello.epoch))
        return (
            f"other copies of this dataset had read epoch {epoch_text(hello.epoch)} before this "
            "one began, so this copy gets none of its elements"
        )

    def _restore_tree(self, job: e.JobEntry, hello: m.ClientHello) -> str | None:
        """Register a job's dataset again if its tree was dropped; return a warning, or "".

        Returns:
            ``None`` if the client must send the tree.

        Raises:
            NotFoundError: if the client has no tree.
        """
        old = self._state.datasets[job.dataset_id]
        if old.tree:
            return ""
        if hello.registration is None:
            find_dataset(self._state, job.dataset_id)  # raises
        assert hello.registration is not None
        dataset_id = registered_id(self._ledger, hello.registration, kept=False)
        if not dataset_id:
            return None
        if dataset_id == job.dataset_id:
            return ""
        self._ledger.commit(r.JobDatasetChanged(hello.job, dataset_id))
        self._collector.job_left(old.dataset_id)
        different = jobs.difference(old, hello.registration) or "another dataset"
        return (
            f"job {hello.job!r} was created with {different} than this process has; those of this "
            "process are used, because nobody has read the job for long"
        )

    # A job starts anew for functions that the job has not seen, compared by the digest of their
    # code. (docs/decisions/053)
    def _is_outdated(self, job: e.JobEntry, hello: m.ClientHello, now: float) -> bool:
        """Return whether a client starts the job anew: an edited script was run again.

        Ranks of one script may differ in their functions too, but they come at about one time.
        """
        if self._iterations.idle_seconds(job, now) < OUTDATED_SECONDS:
            return False
        return jobs.fingerprint(jobs.requested_dataset(self._state, hello)) not in job.codes

    def _end_outdated(self, job: e.JobEntry, hello: m.ClientHello, now: float) -> str:
        """Remove the iterations of a job, and the job with them; return a warning."""
        first = self._state.datasets[job.dataset_id]
        requested = jobs.requested_dataset(self._state, hello)
        different = jobs.difference(first, requested) or "another dataset"
        idle = self._iterations.idle_seconds(job, now)
        for iteration in list(job.iterations.values()):
            self._iterations.remove(iteration)
        return (
            f"job {hello.job!r} starts anew: it had no client for {idle:.0f} s, and this process "
            f"has {different}"
        )


def _read_by_others(job: str, epoch: tuple[int, ...]) -> str:
    which = f"epoch {epoch_text(epoch)}" if any(epoch) else "the first epoch"
    return (
        f"all elements of {which} of job {job!r} were read before, so this client gets none; use "
        "another job_name to read them again, or repeat() to go on with later epochs"
    )


def _made_too_late(epoch: tuple[int, ...]) -> str:
    return (
        f"epoch {epoch_text(epoch)} of this dataset had ended before this copy of it was made, by "
        "fork or unpickling, so that it would yield nothing: copies share a job, and each counts "
        "the epochs that it reads. For PyTorch's DataLoader wrap the dataset in "
        "stoker.torch.IterableDataset. Elsewhere choose the epoch with "
        "dataset.iterator(epoch=...), or call distribute in the process that reads, with a "
        "`job_name` that is new for each epoch"
    )
