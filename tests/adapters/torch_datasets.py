"""Functions and datasets that worker processes of PyTorch import."""

from typing import Any

import torch
import torch.utils.data


def square(x: int) -> int:
    return x * x


def ones(count: int) -> Any:
    return torch.ones(count)


class Squares(torch.utils.data.Dataset[Any]):  # type: ignore[misc]
    """A map-style dataset."""

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return {"x": torch.full((2,), index**2), "y": index}


class Countdown(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """An iterable dataset."""

    def __iter__(self) -> Any:
        return iter(torch.tensor([3, 2, 1]))


class Wrapped(torch.utils.data.IterableDataset[Any]):  # type: ignore[misc]
    """A user's own wrapper of a stoker Dataset."""

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset

    def __iter__(self) -> Any:
        return iter(self.dataset)
