"""The way from an element of a dataset to the batch that the user gets."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from stoker.elements.structure import flatten
from stoker.torch.tensors import moved, pinned, to_tensors


class Delivery:
    """Converts elements, and copies the results to the device.

    Args:
        collate_fn: makes a batch; ``None``: the element is a batch.
        in_lists: `collate_fn` gets a list of elements.
        pin_memory: copy to page-locked memory.
        device: device of the tensors; ``None``: tensors stay in the memory of this process.
    """

    def __init__(
        self,
        collate_fn: Callable[[Any], Any] | None,
        *,
        in_lists: bool,
        pin_memory: bool,
        device: torch.device | None,
    ) -> None:
        self._collate_fn = collate_fn
        self._in_lists = in_lists
        self._pin_memory = pin_memory
        self._device = device

    def convert(self, holder: list[Any]) -> Any:
        """Return the batch of the element in `holder`."""
        batch = self._batch_of(holder)
        return batch if self._device is None else moved(batch, self._device)

    def _batch_of(self, holder: list[Any]) -> Any:
        if self._collate_fn is None:
            return to_tensors(holder, pin_memory=self._pin_memory)
        if self._in_lists:
            waiting = holder.pop()[::-1]
            samples = []
            # Each sample leaves the list first: an array with a second reference would be copied.
            while waiting:
                samples.append(to_tensors([waiting.pop()]))
            batch = self._collate_fn(samples)
        else:
            batch = self._collate_fn(to_tensors(holder))
        return pinned(batch) if self._pin_memory else batch


class CudaDelivery(Delivery):
    """Copies batches on a separate CUDA stream, so that the stream of the trainer continues.

    Args:
        collate_fn: see `Delivery`.
        in_lists: see `Delivery`.
        device: with an index.
    """

    def __init__(
        self, collate_fn: Callable[[Any], Any] | None, *, in_lists: bool, device: torch.device
    ) -> None:
        super().__init__(collate_fn, in_lists=in_lists, pin_memory=True, device=device)
        self._gpu = device

    @functools.cached_property
    def _stream(self) -> Any:
        return torch.cuda.Stream(self._gpu)

    def convert(self, holder: list[Any]) -> tuple[Any, Any]:
        """Return the batch, and the event that is recorded when the batch is on the device."""
        # A new thread has the device 0, on which page-locked memory would open a context.
        with torch.cuda.device(self._gpu), torch.cuda.stream(self._stream):
            batch = super().convert(holder)
            ready = torch.cuda.Event()
            ready.record(self._stream)
        return batch, ready

    def receive(self, converted: tuple[Any, Any]) -> Any:
        """Return the batch of `convert`; let the current stream wait for the copy."""
        batch, ready = converted
        stream = torch.cuda.current_stream(self._gpu)
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
