"""Tasks for the clients of one process, which end with the iterator that has read them."""

from stoker.errors import FailedPreconditionError
from stoker.service.messages import JobParameters
from stoker.service.rules.processing_modes import ShardingPolicy


def frees_local_tasks(parameters: JobParameters) -> bool:
    """Return whether the tasks of a LOCAL job occupy the trainer's processor and end with it.

    Under other policies the next client gets their splits; a cross-trainer cache stays for other
    trainers.
    """
    is_off = parameters.processing_mode is ShardingPolicy.OFF
    is_local = parameters.target_workers == "LOCAL"
    return is_off and is_local and not parameters.use_cross_trainer_cache


def deleted(task_id: int, worker: str, job: str) -> FailedPreconditionError:
    """Return the error of a client that would read on where a closed iterator has stopped.

    Args:
        task_id: the task.
        worker: the address of its worker.
        job: the name of its job.
    """
    return FailedPreconditionError(
        f"Got request for local task {task_id} of worker {worker}, which has been deleted. You may "
        "be creating a duplicate iteration which has already finished. To fix this, make sure to "
        "create your dataset only once, as opposed to re-creating it repeatedly inside a loop. The "
        f"first iterator of job {job!r} in this process was closed before its end; each iter() of "
        "one dataset object, and another job_name, reads the data anew"
    )
