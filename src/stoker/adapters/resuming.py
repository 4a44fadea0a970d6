"""The methods with which users count, save and resume the epochs of a loader."""

from typing import Any, ClassVar

from stoker.adapters.epochs import Epochs


class CountedEpochs:
    """A loader of epochs that have numbers."""

    _called: ClassVar[str]
    _epochs: Epochs

    def __repr__(self) -> str:
        shown = self._epochs.settings()
        for name in ("batch_size", "device", "sharding"):
            if (value := getattr(self, name, None)) is not None:
                shown[name] = value
        given = (f"{k}={v!r}" for k, v in shown.items() if v is not None and v is not False)
        return f"{self._called}({', '.join(given)})"

    def __len__(self) -> int:
        return len(self._epochs)

    def __bool__(self) -> bool:
        return True  # otherwise `if loader:` would ask for the length

    def set_epoch(self, epoch: int) -> None:
        """Give the next epoch the number `epoch`; later epochs follow.

        Without, epochs are counted from 0. With several ranks, call `set_epoch` if a rank may have
        begun more epochs than another rank, for example after a resume.

        Args:
            epoch: 0 or more.
        """
        self._epochs.set_next(epoch)


class ResumableEpochs(CountedEpochs):
    """A loader whose epochs can be saved and continued."""

    def state_dict(self) -> dict[str, Any]:
        """Return the position after the last batch as small JSON, for `load_state_dict`.

        Between epochs the state is the number of the next epoch. Within an epoch of a service the
        state continues in "deterministic_epoch", with any number of ranks; in other modes the state
        is the number of that epoch, with a warning: the epoch starts again when the state is
        loaded. The state is the same on all ranks; a single rank may save the state.
        """
        return self._epochs.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue with the next ``iter(loader)`` after the batch of a state.

        Args:
            state_dict: from `state_dict` of a loader with the same dataset and arguments.

        Raises:
            InvalidArgumentError: if `state` is not such a state, or its seed differs from the
                loader's.
        """
        self._epochs.load_state_dict(state_dict)
