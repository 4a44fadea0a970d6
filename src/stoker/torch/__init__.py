"""PyTorch: datasets as tensors, `torch.utils.data` datasets as sources.

Import it as ``import stoker.torch``; it needs PyTorch, which stoker does not install.
"""

from stoker.torch.iterable import IterableDataset
from stoker.torch.loader import DataLoader
from stoker.torch.source import from_torch

__all__ = ["DataLoader", "IterableDataset", "from_torch"]
