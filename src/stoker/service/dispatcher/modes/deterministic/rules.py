"""DETERMINISTIC: clients ask every task for positions of the epoch."""

from collections.abc import Sequence

import msgspec

from stoker.errors import InvalidArgumentError, StokerError, UnavailableError
from stoker.service import messages as m
from stoker.service.dispatcher.entities.entities import ClientEntry, Iteration, TaskEntry, TaskTally
from stoker.service.dispatcher.entities.registered import DatasetInfo
from stoker.service.dispatcher.modes.deterministic.state import EpochState
from stoker.service.dispatcher.modes.mode import Mode, Sharing
from stoker.service.dispatcher.modes.states import AnyModeState
from stoker.service.process.logs import epoch_text
from stoker.service.rules.checks import check_counted


def _state_of(iteration: Iteration) -> EpochState:
    state = iteration.mode_state
    assert isinstance(state, EpochState)
    return state


class ByPosition(Sharing):
    """Each client asks every task for the positions that it needs."""

    def of_task(self, iteration: Iteration) -> m.AnySharing:
        """Return that the worker sends each client what it asks for."""
        return m.ByPosition()

    # Two processes that read a job without an index would each read all of it, where clients of
    # other modes share the elements; the older one is most likely a trainer that was killed.
    def successor_error(self, other: ClientEntry, hello: m.ClientHello) -> StokerError | None:
        """Return the error of a client without an index, unless the new one is in its process.

        Iterators of one process may read an epoch twice, as they may without a service.
        """
        same_process = bool(hello.process) and hello.process == other.process
        if hello.consumer_index is not None or other.consumer_index is not None or same_process:
            return None
        is_copy = hello.copied is not None and not _is_original(hello.copied)
        advice = (
            "For PyTorch's DataLoader wrap the dataset in stoker.torch.IterableDataset. " * is_copy
        )
        return UnavailableError(
            f"another process reads epoch {epoch_text(hello.epoch)} of job {hello.job!r} now, so "
            f"that this reader ended. {advice}Processes that share an epoch give `num_consumers` "
            "and their `consumer_index` to distribute"
        )


class Deterministic(Mode):
    """Every task yields the positions that clients ask for; clients alone know what they read."""

    state_type = EpochState
    ends_with_clients = True

    def check(self, dataset: m.RegisterDataset | DatasetInfo, hello: m.ClientHello) -> None:
        """Check that the positions of the dataset are known, and the draws of the epoch."""
        super().check(dataset, hello)
        check_counted(dataset.positions)
        parameters, index = hello.parameters, hello.consumer_index
        if hello.draws is None or (index is not None and index < 0):
            raise InvalidArgumentError(
                "a client of a deterministic epoch must send its draws, and a `consumer_index` of "
                f"0 or more; got {hello.draws} and {index}"
            )
        if parameters.use_cross_trainer_cache or parameters.num_consumers is not None:
            raise InvalidArgumentError(
                "clients of a deterministic epoch share no cache and agree on no `num_consumers`; "
                f"got {parameters}"
            )

    def new_state(
        self,
        dataset: m.RegisterDataset | DatasetInfo,
        addresses: Sequence[str],
        hello: m.ClientHello | None = None,
    ) -> AnyModeState:
        """Return the length of the epoch, and the draws of its first client."""
        assert hello is not None
        assert hello.draws is not None
        return EpochState(length=check_counted(dataset.positions), draws=hello.draws)

    def fits(self, state: AnyModeState) -> bool:
        """Return whether the state of an iteration has a possible length."""
        return super().fits(state) and isinstance(state, EpochState) and state.length >= 0

    def continues(self, iteration: Iteration, hello: m.ClientHello) -> bool:
        """Return whether the iteration has tasks, or will have, with the draws of the client."""
        if iteration.error is not None:
            return True
        return not iteration.stopped and _state_of(iteration).draws == hello.draws

    def length(self, iteration: Iteration) -> int | None:
        """Return the number of positions."""
        return _state_of(iteration).length

    def reopened_warning(self, iteration: Iteration, hello: m.ClientHello) -> str:
        """Return the warning for a client that begins an epoch that another one has begun."""
        # Consumers begin an epoch one after another; and who gives an epoch or a state knows it.
        if hello.consumer_index is not None or hello.copied is None:
            return ""
        return (
            f"epoch {epoch_text(iteration.epoch)} of job {hello.job!r} was begun before, and this "
            "reader begins it again from its first element: go on with "
            "dataset.iterator(state=...), or choose the epoch with dataset.iterator(epoch=...)"
        )

    # ── tasks ─────────────────────────────────────────────────────────────────────────────────────
    def may_never_start(self, dataset: DatasetInfo) -> bool:
        """Return True: tasks do not end before their clients."""
        return True

    def common_seed(self, iteration: Iteration) -> int | None:
        """Return the seed of the client's draws: any task may compute any position."""
        return _state_of(iteration).draws.seed

    def task_start(self, task: TaskEntry) -> m.TaskStart:
        """Return what the worker needs, with the salts of the client's draws."""
        salts = _state_of(task.iteration).draws.salts
        return msgspec.structs.replace(super().task_start(task), salts=salts)

    def of_task(self, task: TaskEntry, sharing: m.AnySharing) -> m.AnyTask:
        """Return the positions that clients may ask for."""
        state = _state_of(task.iteration)
        draws = state.draws
        return m.PositionTask(
            length=state.length,
            seed_given=draws.seed_given,
            first_number=draws.first_number,
            sharing=sharing,
        )

    # ── ends ──────────────────────────────────────────────────────────────────────────────────────
    def is_computed(self, iteration: Iteration, counts: TaskTally) -> bool:
        """Return False: only a client knows when it has read all."""
        return False

    def is_finished(self, iteration: Iteration) -> bool:
        """Return False, as `is_computed`."""
        return False

    def elements_lost(self, task: TaskEntry, undelivered: int | None) -> int | None:
        """Return 0: other tasks compute what clients lack."""
        return 0


def _is_original(copied: m.CopyTime) -> bool:
    """Return whether a reader's dataset was made in its process."""
    return copied.age == float("inf")
