"""`stoker.keras.adapt`: models are fitted with each backend, in a process of its own."""

import importlib.util
import os
import subprocess
import sys

import pytest

# Importing keras here would import the framework of its default backend.
for name in ("keras", "torch", "jax"):
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed", allow_module_level=True)

TRAINING = """
import warnings
import keras, numpy as np, stoker, stoker.keras

inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
targets = inputs @ np.array([[1.0], [2.0], [3.0]], np.float32)
samples = stoker.Dataset.from_tensor_slices((inputs, targets))


def model():
    made = keras.Sequential([keras.layers.Dense(1)])
    made.compile(optimizer=keras.optimizers.SGD(0.1), loss="mse")
    return made


class Steps(keras.callbacks.Callback):
    def __init__(self):
        super().__init__()
        self.steps = []

    def on_epoch_begin(self, epoch, logs=None):
        self.steps.append(0)

    def on_train_batch_end(self, batch, logs=None):
        self.steps[-1] += 1


def main():
    fitted, counter = model(), Steps()
    train = stoker.keras.adapt(samples, 16, shuffle=True)
    assert len(train) == train.num_batches == 4
    assert "batch_size=16, shuffle=True" in repr(train), repr(train)
    test = stoker.keras.adapt(samples.batch(32))
    history = fitted.fit(train, epochs=15, verbose=0, validation_data=test, callbacks=[counter])
    assert history.history["loss"][-1] < 1e-3, history.history
    assert counter.steps == [4] * 15, counter.steps
    assert fitted.evaluate(test, verbose=0) < 1e-3
    predicted = fitted.predict(stoker.keras.adapt(samples.map(lambda x, y: x).batch(10)), verbose=0)
    assert np.abs(predicted - targets).max() < 0.1

    with stoker.LocalCluster(2) as cluster:
        served, counter = stoker.keras.adapt(samples.distribute(cluster), 16), Steps()
        assert served.num_batches == 4
        model().fit(served, epochs=3, verbose=0, callbacks=[counter])
        assert counter.steps == [4] * 3, counter.steps
        # Ranks that cannot communicate have parts of one length, without a job_name.
        parts = [
            stoker.keras.adapt(samples.distribute(cluster), 10, rank=rank, world_size=3)
            for rank in range(3)
        ]
        assert [part.num_batches for part in parts] == [3] * 3
        for part in parts:
            counter = Steps()
            model().fit(part, epochs=2, verbose=0, callbacks=[counter])
            assert counter.steps == [3] * 2, counter.steps

    endless, counter = stoker.keras.adapt(samples.repeat().batch(16)), Steps()
    model().fit(endless, epochs=2, steps_per_epoch=5, verbose=0, callbacks=[counter])
    assert counter.steps == [5, 5], counter.steps

    unknown, counter = stoker.keras.adapt(samples.filter(lambda x, y: True).batch(16)), Steps()
    assert unknown.num_batches is None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Keras warns where the first epoch finds the length
        model().fit(unknown, epochs=2, verbose=0, callbacks=[counter])
    assert counter.steps == [4, 4], counter.steps
    # A list is (x, y).
    listed = samples.batch(16).map(lambda x, y: [x, y])
    assert model().fit(stoker.keras.adapt(listed), verbose=0).history["loss"]

    # The named epoch is read, wherever the model began others.
    order = []
    seen = samples.shuffle(64).map(lambda x, y: (order.append(float(y[0])), (x, y))[1]).batch(64)
    named = stoker.keras.adapt(seen, seed=1)
    orders = []
    for _ in range(2):
        named.set_epoch(5)
        order.clear()
        model().fit(named, steps_per_epoch=1, verbose=0)
        orders.append(order[:64])
    assert orders[0] == orders[1], orders
    print("fitted with", keras.backend.backend())


main()
"""

ARGUMENTS = """
import keras, numpy as np, stoker, stoker.keras
from stoker.keras import adapt

inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
labels = (inputs[:, 0] > 0).astype(np.int64)
hot = np.eye(2, dtype=np.float32)[labels]
samples = stoker.Dataset.from_tensor_slices((inputs, labels))
WEIGHTS = {1: 5.0}


def model(loss="sparse_categorical_crossentropy"):
    keras.utils.set_random_seed(1)
    made = keras.Sequential([keras.layers.Dense(2, activation="softmax")])
    made.compile(optimizer=keras.optimizers.SGD(0.1), loss=loss)
    return made


def losses(made, *arguments, **options):
    return made.fit(*arguments, epochs=2, verbose=0, **options).history["loss"]


def refused(words, call):
    try:
        call()
    except ValueError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)


# Class weights are those of Keras, of numbers and of one-hot vectors.
expected = losses(model(), inputs, labels, 16, shuffle=False, class_weight=WEIGHTS)
weighted = losses(model(), adapt(samples, 16, class_weight=WEIGHTS))
np.testing.assert_allclose(weighted, expected, rtol=1e-5)
unknown = samples.map(lambda x, y: (x, y)).batch(16)
weighted = losses(model(), adapt(unknown, class_weight=WEIGHTS))
np.testing.assert_allclose(weighted, expected, rtol=1e-5)
assert not np.allclose(losses(model(), adapt(samples, 16)), expected)
vectors = stoker.Dataset.from_tensor_slices((inputs, hot))
loss = "categorical_crossentropy"
expected = losses(model(loss), inputs, hot, 16, shuffle=False, class_weight=WEIGHTS)
weighted = losses(model(loss), adapt(vectors, 16, class_weight=WEIGHTS))
np.testing.assert_allclose(weighted, expected, rtol=1e-5)

# Arguments of Keras's methods that do not reach the dataset are errors.
train = adapt(samples, 16, shuffle=True)
refused("adapt(dataset, class_weight=...)", lambda: model().fit(train, class_weight=WEIGHTS))
refused("adapt(dataset, batch_size)", lambda: model().fit(train, batch_size=8))
refused("adapt(dataset, batch_size)", lambda: model().predict(train, batch_size=8))
refused("omit shuffle=True", lambda: model().fit(train, shuffle=False))
refused("yield elements (x, y)", lambda: model().fit(train, labels))
refused("(x, y, sample_weight)", lambda: model().evaluate(train, sample_weight=labels))
# Those of a fit on arrays are no matter of its validation data.
assert losses(model(), inputs, labels, 16, shuffle=False, validation_data=adapt(samples, 16))

# Samples in place of batches, and a Dataset itself, are errors that name the cure.
refused("Give `batch_size` to stoker.keras.adapt", lambda: model().fit(adapt(samples)))
refused(
    "Give `batch_size` to stoker.keras.adapt",
    lambda: model().fit(adapt(samples.map(lambda x, y: (x, [y])))),
)
refused("stoker.keras.adapt(dataset)", lambda: model().fit(samples))
refused("stoker.keras.adapt(dataset)", lambda: losses(model(), train, validation_data=samples))

weights = samples.map(lambda x, y: (x, y, 1.0)).batch(16)
refused("without sample weights", lambda: model().fit(adapt(weights, class_weight=WEIGHTS)))
refused("must be a dict", lambda: adapt(samples, class_weight=[1, 5]))
assert np.asarray([samples, samples]).dtype == object
print("fitted with", keras.backend.backend())
"""


@pytest.mark.timeout(300)
@pytest.mark.parametrize("backend", ["torch", "jax", "tensorflow"])
@pytest.mark.parametrize("script", [TRAINING, ARGUMENTS], ids=["training", "arguments"])
def test_models_are_fitted_evaluated_and_predict(script, backend):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={**os.environ, "KERAS_BACKEND": backend},
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert f"fitted with {backend}" in done.stdout
