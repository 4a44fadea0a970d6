"""What workers may send: the interface of credit and of wants."""

from abc import ABC, abstractmethod

from stoker.service.task_evidence import TaskEvidence
from stoker.wire import frames as f


class Grants(ABC):
    """Decides what each worker may send, and when a worker must be notified of more.

    Attributes:
        metered: workers announce what they have ready.
        by_frame: frames are acknowledged, kept until then and given back. Otherwise elements are
            acknowledged by position, and what is lost is asked of another worker.
    """

    metered = False
    by_frame = True

    @property
    @abstractmethod
    def window(self) -> int:
        """Elements that may be sent and not consumed, over all workers."""

    @abstractmethod
    def message(self, task_id: int, consumed: int) -> f.Message:
        """Return the message for a worker, of whose frames those before `consumed` are consumed."""

    @abstractmethod
    def connected(self, task_id: int, max_bytes: int) -> None:
        """Record a new connection, on which the worker sends at most `max_bytes` ahead."""

    @abstractmethod
    def disconnected(self, task_id: int) -> list[int]:
        """Record that the task has no connection any more; return the tasks to report to."""

    def begin(self) -> list[int]:
        """Record that the consumer reads; return as `ready`. Only the first call has an effect."""
        return []

    def ended(self, task_id: int) -> None:  # noqa: B027 - of interest to credit only
        """Record that the worker has no more elements, unless another client gives some back."""

    def extend(self, task_id: int, elements: int) -> None:  # noqa: B027 - as `ended`
        """Let `message` grant `elements` more than have arrived, beyond the limit too."""

    def ready(self, task_id: int, elements: int, returned: int) -> list[int]:
        """Record that the worker has `elements` elements without credit and returns unused credit.

        Returns:
            The tasks to report to.
        """
        return []

    def order_changed(self) -> list[int]:
        """Record that other tasks may be needed first; return as `ready`."""
        return []

    def received(self, task_id: int, positions: int, waited: float) -> None:  # noqa: B027 - as `ended`
        """Record elements that arrived after the consumer had waited `waited` seconds."""

    def reported(self, task_id: int, evidence: TaskEvidence | None) -> None:  # noqa: B027 - as `ended`
        """Record the evidence of a worker."""

    def consumed(
        self, task_id: int, positions: int, nbytes: int, seconds: float, now: float
    ) -> list[int]:
        """Record that the consumer worked `seconds` on elements; return as `ready`."""
        return []

    def due(self, task_id: int, positions: int, nbytes: int) -> bool:
        """Return whether there is a report to make, if it costs little; arguments as `urgent`."""
        return False

    def urgent(self, task_id: int, positions: int, nbytes: int) -> bool:
        """Return whether the worker may run out of credit before its next message.

        Args:
            task_id: the task.
            positions: elements that are consumed and not recorded by `consumed`.
            nbytes: their approximate size.
        """
        return False
