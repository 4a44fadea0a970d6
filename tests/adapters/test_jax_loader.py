"""`stoker.jax.DataLoader`: sharded batches, and a training of one and of two processes."""

import json
import os
import socket
import subprocess
import sys

import pytest

import stoker

pytest.importorskip("jax")
pytest.importorskip("torch")  # imported by the processes

BATCHES = """
import threading
import jax, numpy as np, stoker, stoker.jax, torch
from jax.sharding import Mesh, NamedSharding, PartitionSpec
from stoker.errors import InvalidArgumentError

assert len(jax.devices()) == 4
mesh = Mesh(np.array(jax.devices()), ("data",))
Dataset, DataLoader = stoker.Dataset, stoker.jax.DataLoader

# Batches are sharded over the mesh; scalars are replicated, text stays.
dataset = Dataset.range(20).map(lambda i: {"x": np.full(3, i, np.float32), "s": str(i)})
loader = DataLoader(dataset, 8, shuffle=True, drop_last=True, sharding=mesh)
assert len(loader) == 2
batches = list(loader)
for batch in batches:
    assert batch["x"].sharding == NamedSharding(mesh, PartitionSpec("data"))
    assert [shard.data.shape for shard in batch["x"].addressable_shards] == [(2, 3)] * 4
    assert batch["x"][:, 0].tolist() == [int(s) for s in batch["s"]]
[dated] = DataLoader(Dataset.range(1).map(lambda _: np.datetime64("2026-01-01")))
assert dated == np.datetime64("2026-01-01")

# Arrays of JAX and tensors that functions return are sharded, too.
for make in (jax.numpy.ones, torch.ones):
    [array] = DataLoader(Dataset.range(1).map(lambda _, make=make: make(8)), sharding=mesh)
    assert array.sharding == NamedSharding(mesh, PartitionSpec("data"))

# Batches are on the devices ahead of the trainer.
placed, place = threading.Semaphore(0), jax.make_array_from_process_local_data
def counted(*arguments):
    placed.release()
    return place(*arguments)
jax.make_array_from_process_local_data = counted
with iter(DataLoader(Dataset.counter(), 4, sharding=mesh, prefetch_factor=3)) as ahead:
    next(ahead)
    for _ in range(4):
        assert placed.acquire(timeout=60)
jax.make_array_from_process_local_data = place
[scalar] = DataLoader(Dataset.range(1).map(float).map(np.float32), sharding=mesh)
assert scalar.sharding.is_fully_replicated

# A batch that the mesh cannot divide is an error that says what to do.
try:
    list(DataLoader(Dataset.range(3), 3, sharding=mesh))
except InvalidArgumentError as error:
    assert "drop_last=True" in str(error)
else:
    raise AssertionError("no error")

# Arrays never share memory with the user's.
table = np.zeros((4, 1000), np.float32)
[array] = DataLoader(Dataset.from_tensors(table))
table += 1
assert not array.any()

# The state continues an epoch.
def make():
    return DataLoader(Dataset.range(40).shuffle(40), 4)

loader = make()
iterator = iter(loader)
first = [next(iterator) for _ in range(3)]
resumed = make()
resumed.load_state_dict(loader.state_dict())
assert [b.tolist() for b in resumed] == [b.tolist() for b in iterator]
assert [b.tolist() for b in resumed] == [b.tolist() for b in loader]

# A training over a service.
inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
targets = inputs @ np.array([1.0, 2.0, 3.0], np.float32)


@jax.jit
def step(weights, x, y):
    loss, gradient = jax.value_and_grad(lambda w: ((x @ w - y) ** 2).mean())(weights)
    return weights - 0.1 * gradient, loss


weights = np.zeros(3, np.float32)
with stoker.LocalCluster(1) as cluster:
    samples = Dataset.from_tensor_slices((inputs, targets)).shuffle(64).distribute(cluster)
    loader = DataLoader(samples, 16, sharding=mesh)
    for _ in range(20):
        steps = 0
        for x, y in loader:
            weights, loss = step(weights, x, y)
            steps += 1
        assert steps == 4
assert loss < 1e-3, loss
print("trained")
"""

ARGUMENTS = """
import warnings
import jax, numpy as np, stoker, stoker.jax
from jax.sharding import Mesh, NamedSharding, PartitionSpec, SingleDeviceSharding
from stoker.errors import InvalidArgumentError, InvalidTypeError

Dataset, DataLoader = stoker.Dataset, stoker.jax.DataLoader
dataset = Dataset.range(8).map(lambda i: np.full(3, i, np.float32))
devices = np.array(jax.devices())


def refused(error, words, **arguments):
    try:
        DataLoader(dataset, 4, **arguments)
    except error as raised:
        assert words in str(raised), raised
    else:
        raise AssertionError(words)


def sharding_of(sharding):
    return next(iter(DataLoader(dataset, 4, sharding=sharding))).sharding


# Arguments of PyTorch's loader are explained; its defaults are accepted.
for name, words in {
    "num_workers": "on the workers of a service", "sampler": "choice(len(weights)",
    "batch_sampler": "use batch_size", "collate_fn": "dataset.batch", "device": "sharding=device",
    "pin_memory": "ahead of the trainer", "generator": "use seed", "timeout": "connect_timeout",
    "colour": "stoker.jax.DataLoader got an unexpected keyword argument 'colour'",
}.items():
    refused(InvalidTypeError, words, **{name: 4})
assert len(DataLoader(dataset, 4, num_workers=0, pin_memory=False, sampler=None)) == 2

# A device, and a PartitionSpec of all devices or of the current mesh, are shardings.
assert sharding_of(jax.devices()[2]) == SingleDeviceSharding(jax.devices()[2])
spec = PartitionSpec("data")
assert sharding_of(spec) == NamedSharding(Mesh(devices, ("data",)), spec)
assert sharding_of(PartitionSpec()).is_fully_replicated
refused(InvalidArgumentError, "NamedSharding(mesh, spec)", sharding=PartitionSpec("x", "y"))
mesh = Mesh(devices.reshape(2, 2), ("x", "y"))
with jax.set_mesh(mesh):
    assert sharding_of(PartitionSpec(("x", "y"))) == NamedSharding(mesh, PartitionSpec(("x", "y")))
    refused(InvalidArgumentError, "['x', 'y']", sharding=spec)

# An int that does not fit is a warning, once.
def warned(*arrays):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        list(DataLoader(Dataset.from_generator(lambda: arrays)))
    return [str(each.message) for each in caught]


high = np.array([1, 2**40])
[message] = warned(high, high)
assert message.startswith("1099511627776 (int64) arrives as 0: ") and "jax_enable_x64" in message
assert warned(-high)[0].startswith("-1099511627776")
assert warned(high.astype(np.uint64))[0].startswith("1099511627776 (uint64) arrives as 0: ")
assert warned(np.int64(2**40))
fits = np.array([-(2**31), 2**31 - 1])
assert not warned(fits, high[:0], fits.astype(np.float64), np.array([2**32 - 1], np.uint64))
jax.config.update("jax_enable_x64", True)
assert not warned(high)

assert repr(DataLoader(dataset, 4, True, seed=5)) == (
    f"stoker.jax.DataLoader(dataset={dataset!r}, batch_size=4, shuffle=True, seed=5)"
)
print("checked")
"""

PROCESSES = """
import json, sys
import jax, numpy as np, stoker, stoker.jax
from jax.sharding import Mesh

jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
mesh = Mesh(np.array(jax.devices()), ("data",))
dataset = stoker.Dataset.range(11).shuffle(11)
if sys.argv[3] != "local":
    dataset = dataset.distribute(sys.argv[3])
loader = stoker.jax.DataLoader(dataset, 2, sharding=mesh)
for epoch in range(2):
    batches = list(loader)
    assert [batch.shape for batch in batches] == [(4,), (4,), (2,)], batches
    local = [int(x) for b in batches for shard in b.addressable_shards for x in shard.data]
    print("read", epoch, *local, flush=True)
next(iter(loader))
print(json.dumps(loader.state_dict()["iterator"]), flush=True)
"""

SHORT_BATCHES = """
import os, sys
import jax, numpy as np, stoker, stoker.jax
from jax.sharding import Mesh
from stoker.errors import InvalidArgumentError

jax.distributed.initialize(sys.argv[1], num_processes=2, process_id=int(sys.argv[2]))
mesh = Mesh(np.array(jax.devices()), ("data",))
batches = stoker.Dataset.range(14).batch(4)
if sys.argv[3] == "service":
    batches = batches.distribute(sys.argv[4])
else:
    batches = batches.shuffle(1)
dealt = iter(stoker.jax.DataLoader(batches, sharding=mesh))
shapes = [next(dealt).shape]
try:
    shapes.append(next(dealt).shape)
except InvalidArgumentError as error:
    assert "drop_remainder=True" in str(error)
    shapes.append("refused")
own = stoker.jax.DataLoader(stoker.Dataset.range(14).batch(4), sharding=mesh)
print("read", shapes, [batch.shape for batch in own], flush=True)
"""


def environment(devices):
    flags = f"--xla_force_host_platform_device_count={devices}"
    return {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}


@pytest.mark.timeout(200)
@pytest.mark.parametrize(("script", "end"), [(BATCHES, "trained"), (ARGUMENTS, "checked")])
def test_batches_are_sharded_over_four_devices_and_train(script, end):
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment(4), capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert end in done.stdout


@pytest.mark.timeout(200)
@pytest.mark.parametrize("where", ["local", "service"])
def test_two_processes_get_parts_of_each_global_batch(where):
    if where == "local":
        list(read_by_two_processes("local"))
        return
    with stoker.LocalCluster(1) as cluster:
        *epochs, state = read_by_two_processes(cluster.target)
    # The order of a local dataset, which continues the epoch of the two processes.
    whole = stoker.Dataset.range(11).shuffle(11)
    whole._adopt_seeds(0, ())
    assert epochs == [[int(x) for x in whole.iterator(epoch=epoch)][:10] for epoch in range(2)]
    rest = whole.batch(2).prefetch(2).iterator(state=state)
    assert [x for batch in rest for x in batch] == [*whole.iterator(epoch=2)][4:]


@pytest.mark.timeout(200)
@pytest.mark.parametrize("where", ["local", "service"])
def test_batch_of_another_size_than_the_first_is_refused(where):
    with stoker.LocalCluster(1, threads=True) as cluster:
        outputs = run_two_processes(SHORT_BATCHES, where, cluster.target)
    assert "read [(8,), (8,)] [(8,), (6,)]\n" in outputs[0]
    assert "read [(8,), 'refused'] [(8,), (6,)]\n" in outputs[1]


def run_two_processes(script, *arguments):
    """Run a script in both processes; return what they print."""
    with socket.socket() as probe:
        probe.bind(("localhost", 0))
        address = f"localhost:{probe.getsockname()[1]}"
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", script, address, str(index), *arguments],
            env=environment(1),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for index in range(2)
    ]
    outputs = [process.communicate(timeout=180) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], outputs
    return [output for output, _ in outputs]


def read_by_two_processes(service):
    """Yield what both processes read in each epoch, in the order of positions, and their state."""
    outputs = run_two_processes(PROCESSES, service)
    for epoch in range(2):
        mine, theirs = (
            [int(x) for x in line.split()[2:]]
            for output in outputs
            for line in output.splitlines()
            if line.startswith(f"read {epoch}")
        )
        assert len(mine) == len(theirs) == 5
        assert len({*mine, *theirs}) == 10
        yield [x for pair in zip(mine, theirs, strict=True) for x in pair]
    states = [output.splitlines()[-1] for output in outputs]
    assert states[0] == states[1]
    yield json.loads(states[0])
