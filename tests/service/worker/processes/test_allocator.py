"""What the tuning is for: a freed decoder's buffer is used again, and not mapped anew."""

import subprocess
import sys

import pytest

COUNT_FAULTS = """
import resource, sys
import numpy as np
from stoker.service.worker.processes.allocator import tune_allocator

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):  # several decoders at once, each with half a megabyte or so
        buffers = [np.ones(600_000, np.uint8) for _ in range(8)]
        del buffers
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

tuned = tune_allocator() if sys.argv[1] == "tuned" else True
faults()
print(tuned, faults())
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", COUNT_FAULTS, how], capture_output=True, text=True, check=True
    )
    tuned, count = done.stdout.split()
    assert tuned == "True"
    return int(count)


@pytest.mark.skipif(sys.platform != "linux", reason="tunes glibc")
def test_buffers_used_again_cost_no_page_faults_once_tuned():
    assert faults("default") > 10_000
    assert faults("tuned") < 100


TRIM = """
import numpy as np
from stoker.service.worker.processes.allocator import trim_allocator, tune_allocator

def resident():
    with open("/proc/self/status") as status:
        [line] = [line for line in status if line.startswith("VmRSS")]
    return int(line.split()[1]) / 1024

tune_allocator()
before = resident()
buffers = [np.ones(600_000, np.uint8) for _ in range(200)]
del buffers
kept = resident() - before
trim_allocator()
print(kept, resident() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="tunes glibc")
def test_a_trim_returns_the_memory_that_a_tuned_process_keeps():
    command = [sys.executable, "-c", TRIM]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    kept, rest = done.stdout.split()
    assert float(kept) > 100
    assert float(rest) < 20
