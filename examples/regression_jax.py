"""Train a small network in JAX, with batches on a mesh of devices, and resume in an epoch.

Shows: `stoker.jax.DataLoader` with a sharding, batches padded to a fixed shape, `state_dict`.
One machine: python examples/regression_jax.py
Several: `stoker dispatcher` and `stoker worker` (docs/deployment.md), then on each trainer, with
its RANK: JAX=HOST:1234 PROCESSES=2 RANK=0 python examples/regression_jax.py --service HOST:5050
"""

import argparse
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

import stoker
import stoker.jax

BATCH = 64


def sample(_: int) -> dict[str, np.ndarray]:
    """Compute a point of a noisy curve. Replace this by reading and preparing a sample."""
    random = stoker.random.generator()
    x = random.uniform(-2, 2, size=1).astype(np.float32)
    return {"x": x, "y": np.sin(2 * x) + random.normal(0, 0.02, 1).astype(np.float32)}


def predict(weights: list[jax.Array], x: jax.Array) -> jax.Array:
    hidden, bias, out = weights
    return jnp.tanh(x @ hidden + bias) @ out


@jax.jit
def step(
    weights: list[jax.Array], batch: dict[str, jax.Array]
) -> tuple[list[jax.Array], jax.Array]:
    def loss_of(weights: list[jax.Array]) -> jax.Array:
        return jnp.mean((predict(weights, batch["x"]) - batch["y"]) ** 2)

    loss, gradients = jax.value_and_grad(loss_of)(weights)
    return [w - 0.03 * g for w, g in zip(weights, gradients, strict=True)], loss


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--service", help="address of a dispatcher; default: this process")
    parser.add_argument("--epochs", type=int, default=8)
    arguments = parser.parse_args()
    if "JAX" in os.environ:
        jax.distributed.initialize(
            os.environ["JAX"], int(os.environ["PROCESSES"]), int(os.environ["RANK"])
        )

    dataset = stoker.Dataset.range(4096).shuffle(4096, seed=3).map(sample, stoker.AUTOTUNE)
    if arguments.service:
        dataset = dataset.distribute(arguments.service, job_name="regression_jax")
    mesh = Mesh(np.array(jax.devices()), ("data",))  # the first dimension of a batch is divided
    loader = stoker.jax.DataLoader(dataset, batch_size=BATCH, drop_last=True, sharding=mesh)

    keys = jax.random.split(jax.random.key(0), 2)
    weights = [jax.random.normal(keys[0], (1, 32)), jnp.zeros(32)]
    weights += [jax.random.normal(keys[1], (32, 1)) / 6]
    for epoch in range(arguments.epochs):
        for batch in loader:
            weights, loss = step(weights, batch)
        print(f"epoch {epoch}: loss {loss:.4f}", flush=True)
    assert loss < 0.15, loss

    if not arguments.service:  # an epoch of a service starts again
        resume(loader)


def resume(loader: stoker.jax.DataLoader) -> None:
    """Save a position within an epoch as JSON and go on from it, as after a restart."""
    batches = iter(loader)
    for _ in range(10):
        next(batches)
    saved = json.dumps(loader.state_dict())
    expected = next(batches)
    loader.load_state_dict(json.loads(saved))
    assert (next(iter(loader))["x"] == expected["x"]).all()
    print(f"resumed at batch 10 of an epoch, from {len(saved)} bytes")


if __name__ == "__main__":
    main()
