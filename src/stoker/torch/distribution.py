"""Rank of this process in `torch.distributed`."""

from typing import Any

import torch
import torch.distributed

from stoker.adapters.epochs import Framework
from stoker.adapters.ranks import Rank
from stoker.adapters.reading import Agree

NO_GROUP = (
    "call torch.distributed.init_process_group() before the dataset is read, or the "
    "IterableDataset is created"
)
"""Advice if ranks cannot communicate."""


def has_process_group() -> bool:
    """Return whether `torch.distributed.init_process_group` was called."""
    return torch.distributed.is_available() and torch.distributed.is_initialized()


def _of_rank_0(values: list[str]) -> list[str]:
    """Return the values of rank 0; called by all ranks."""
    received: list[Any] = [values]
    # Collective: the call returns when all ranks have called.
    torch.distributed.broadcast_object_list(received, src=0)
    found: list[str] = received[0]
    return found


def drawn_seed(generator: torch.Generator | None = None) -> int:
    """Return a seed that a generator draws; ``None``: PyTorch's default generator."""
    # `random_` without bounds draws from all non-negative int64.
    return int(torch.empty((), dtype=torch.int64).random_(generator=generator).item())


class TorchFramework(Framework):
    """PyTorch, and the default process group of torch.distributed."""

    advice = NO_GROUP
    seeds_globals = True

    def current_rank(self) -> Rank:
        if has_process_group():
            return Rank(torch.distributed.get_rank(), torch.distributed.get_world_size())
        return super().current_rank()

    def agree(self) -> Agree | None:
        return _of_rank_0 if has_process_group() else None

    def draw_seed(self) -> int:
        return drawn_seed()
