"""The way from an element of a dataset to the batch that the user gets."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from stoker.elements.structure import flatten
from stoker.torch.tensors import moved, pinned, to_tensors


@dataclass(frozen=True)
class Delivery:
    """Converts elements, and copies the results to the device.

    Attributes:
        collate_fn: makes a batch; ``None``: the element is a batch.
        in_lists: `collate_fn` gets a list of elements.
        pin_memory: copy to page-locked memory.
        device: device of the tensors; ``None``: tensors stay in the memory of this process.
    """

    collate_fn: Callable[[Any], Any] | None
    in_lists: bool
    pin_memory: bool
    device: torch.device | None

    def convert(self, holder: list[Any]) -> Any:
        """Return the batch of the element in `holder`."""
        batch = self._batch_of(holder)
        return batch if self.device is None else moved(batch, self.device)

    def receive(self, converted: Any) -> Any:
        """Return the batch of the result of `convert`, on the thread of the trainer."""
        return converted

    def _batch_of(self, holder: list[Any]) -> Any:
        if self.collate_fn is None:
            return to_tensors(holder, pin_memory=self.pin_memory)
        if self.in_lists:
            waiting = holder.pop()[::-1]
            samples = []
            # Each sample leaves the list first: an array with a second reference would be copied.
            while waiting:
                samples.append(to_tensors([waiting.pop()]))
            batch = self.collate_fn(samples)
        else:
            batch = self.collate_fn(to_tensors(holder))
        return pinned(batch) if self.pin_memory else batch


class CudaDelivery(Delivery):
    """Copies batches on a separate CUDA stream, so that the stream of the trainer continues.

    `device` has an index, and `pin_memory` is set: other memory is copied while the trainer waits.
    """

    @functools.cached_property
    def _stream(self) -> Any:
        return torch.cuda.Stream(self.device)

    def convert(self, holder: list[Any]) -> tuple[Any, Any]:
        """Return the batch, and the event that is recorded when the batch is on the device."""
        # A new thread has the device 0, on which page-locked memory would open a context.
        with torch.cuda.device(self.device), torch.cuda.stream(self._stream):
            batch = super().convert(holder)
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return batch, ready

    def receive(self, converted: tuple[Any, Any]) -> Any:
        # The stream of the trainer waits for the copy, and not its thread.
        batch, ready = converted
        stream = torch.cuda.current_stream(self.device)
        stream.wait_event(ready)
        for leaf in flatten(batch):
            if isinstance(leaf, torch.Tensor):
                # The allocator must not reuse the memory before this stream has used the tensor.
                for part in _dense_parts(leaf):
                    part.record_stream(stream)
        return batch


def _dense_parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that have the memory of a tensor; sparse ones have no `record_stream`."""
    if tensor.layout == torch.sparse_coo:
        return [tensor._indices(), tensor._values()]
    return [tensor]
