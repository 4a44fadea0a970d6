"""A trainer: ``trainer.py stoker|tf.data``.

Each line of its standard input is a JSON object, the epoch to read. It prints a line for each
element: the time, the element's number and the process id of the worker that computed it; at the
end of the epoch a JSON object with the time and the error, or "".
"""

import json
import os
import queue
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

ELEMENT_BYTES = 1 << 20
COMPUTE_SECONDS = STEP_SECONDS = 0.02


def stoker_elements(command: dict[str, Any]) -> Iterable[tuple[int, int, Any]]:
    """Return the elements of an epoch of stoker."""
    import numpy as np

    import stoker

    def compute(number: int) -> tuple[int, int, Any]:
        time.sleep(COMPUTE_SECONDS)
        return number, os.getpid(), np.full(ELEMENT_BYTES, number % 251, np.uint8)

    return (
        stoker.Dataset.range(command["elements"])
        .map(compute)
        .distribute(
            command["target"],
            processing_mode=command["mode"],
            job_name=command["job_name"],
            consumer_index=command["consumer_index"],
            num_consumers=command["num_consumers"],
            data_transfer_protocol="tcp",
        )
    )


def tensorflow_elements(command: dict[str, Any]) -> Iterable[tuple[int, int, Any]]:
    """Return the elements of an epoch of tf.data service."""
    import tensorflow as tf
    from tensorflow.python.data.experimental.ops import testing

    def compute(number: Any) -> Any:
        worker = tf.strings.to_number(tf.io.read_file("worker"), tf.int64)
        return number, worker, tf.fill([ELEMENT_BYTES], tf.cast(number % 251, tf.uint8))

    dataset = tf.data.Dataset.range(command["elements"]).map(compute)
    dataset = dataset.apply(testing.sleep(round(COMPUTE_SECONDS * 1e6)))
    distribute = tf.data.experimental.service.distribute(
        processing_mode=command["mode"],
        service=f"grpc://{command['target']}",
        job_name=command["job_name"],
        compression=None,
    )
    return dataset.apply(distribute).as_numpy_iterator()  # type: ignore[no-any-return]


ELEMENTS = {"stoker": stoker_elements, "tf.data": tensorflow_elements}


def receive(commands: "queue.Queue[str]") -> None:
    """Pass on the lines of standard input; at their end, end the process, also within an epoch."""
    for line in sys.stdin:
        commands.put(line)
    os._exit(0)


def main() -> None:
    """Read an epoch for each line of standard input, a step of 20 ms for each element."""
    elements = ELEMENTS[sys.argv[1]]
    commands: queue.Queue[str] = queue.Queue()
    threading.Thread(target=receive, args=(commands,), daemon=True).start()
    while True:
        line = commands.get()
        error = ""
        try:
            for number, worker, _ in elements(json.loads(line)):
                print(time.monotonic(), int(number), int(worker), flush=True)
                time.sleep(STEP_SECONDS)
        except Exception as raised:  # noqa: BLE001 - the table shows it
            error = f"{type(raised).__name__}: {raised}"
        print(json.dumps({"time": time.monotonic(), "error": error}), flush=True)


if __name__ == "__main__":
    main()
