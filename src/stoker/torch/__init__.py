"""PyTorch: datasets as tensors, `torch.utils.data` datasets as sources.

Import this package as ``import stoker.torch``; PyTorch is required, which stoker does not install.
"""

from stoker.torch.iterable import IterableDataset
from stoker.torch.loader import DataLoader
from stoker.torch.source import from_torch

__all__ = ["DataLoader", "IterableDataset", "from_torch"]
