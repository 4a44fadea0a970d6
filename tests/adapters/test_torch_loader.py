"""`stoker.torch.DataLoader`: batches, arguments, epochs and states."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import stoker  # noqa: E402
import stoker.torch  # noqa: E402
from stoker import Dataset  # noqa: E402
from stoker.errors import InvalidArgumentError, InvalidTypeError  # noqa: E402
from stoker.torch import DataLoader  # noqa: E402
from tests.adapters.torch_datasets import Countdown  # noqa: E402


class IndexedSamples:
    """Samples of no library."""

    def __len__(self):
        return 3

    def __getitem__(self, index):
        return index


def values(loader):
    return [batch.tolist() for batch in loader]


def read(loader):
    """Return all numbers of an epoch, sorted."""
    return sorted(torch.cat(list(loader)).tolist())


def test_batches_are_tensors_of_the_arrays_dtype():
    dataset = Dataset.range(3).map(lambda i: {"x": np.full(2, i, np.float32), "name": str(i)})
    first, last = DataLoader(dataset, batch_size=2)
    assert first["x"].dtype == torch.float32
    assert first["x"].tolist() == [[0, 0], [1, 1]]
    assert first["name"] == ["0", "1"]
    assert last["x"].tolist() == [[2, 2]]


def test_a_dataset_of_batches_needs_no_batch_size():
    assert values(DataLoader(Dataset.range(4).batch(3))) == [[0, 1, 2], [3]]


def test_drop_last_drops_a_short_batch():
    loader = DataLoader(Dataset.range(5), batch_size=2, drop_last=True)
    assert len(loader) == 2
    assert values(loader) == [[0, 1], [2, 3]]


def test_length_is_that_of_an_epoch():
    loader = DataLoader(Dataset.range(5), batch_size=2)
    assert len(loader) == 3 == len(list(loader))


def test_unknown_length_is_a_type_error():
    with pytest.raises(TypeError, match="unknown"):
        len(DataLoader(Dataset.range(5).filter(bool), batch_size=2))


def test_shuffle_draws_a_new_order_of_all_in_each_epoch():
    loader = DataLoader(Dataset.range(50), batch_size=50, shuffle=True)
    [first], [second] = values(loader), values(loader)
    assert sorted(first) == sorted(second) == list(range(50))
    assert first != second


def test_manual_seed_repeats_the_shuffled_epochs():
    runs = []
    for _ in range(2):
        torch.manual_seed(5)
        loader = DataLoader(Dataset.range(50), batch_size=50, shuffle=True)
        runs.append([values(loader), values(loader)])
    assert runs[0] == runs[1]


def test_equal_generators_draw_equal_orders():
    one, other = (
        DataLoader(
            Dataset.range(50),
            batch_size=5,
            shuffle=True,
            generator=torch.Generator().manual_seed(1),
        )
        for _ in range(2)
    )
    assert values(one) == values(other)


def test_shuffle_draws_elements_before_maps_compute_them():
    called = []

    def note(i):
        called.append(i)
        return i

    dataset = Dataset.range(1000).map(note).batch(2)
    iterator = iter(DataLoader(dataset, shuffle=True, prefetch_factor=0))
    first = next(iterator).tolist()
    assert called == first
    assert first != [0, 1]


@pytest.mark.parametrize(
    "dataset",
    [Dataset.range(9).filter(bool), Dataset.range(9).repeat()],
    ids=["unknown", "endless"],
)
def test_shuffle_of_unknown_length_is_refused(dataset):
    with pytest.raises(InvalidArgumentError, match=r"use dataset\.shuffle\(buffer_size\)"):
        DataLoader(dataset, batch_size=3, shuffle=True)


def test_collate_fn_gets_a_list_of_samples_with_tensors():
    dataset = Dataset.range(3).map(lambda i: (np.ones(i), i))

    def collate(samples):
        rows = torch.nn.utils.rnn.pad_sequence([row for row, _ in samples], batch_first=True)
        return rows, [label for _, label in samples]

    loader = DataLoader(dataset, batch_size=2, collate_fn=collate)
    assert [(rows.shape, labels) for rows, labels in loader] == [((2, 1), [0, 1]), ((1, 2), [2])]
    assert len(loader) == 2


def test_error_of_a_sample_fails_its_collated_batch_only():
    dataset = Dataset.range(6).map(lambda i: 1 // (i - 2))
    iterator = iter(DataLoader(dataset, batch_size=2, collate_fn=list))
    assert next(iterator) == [-1, -1]
    with pytest.raises(ZeroDivisionError):
        next(iterator)
    assert next(iterator) == [0, 0]


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ({"num_workers": 4}, "IterableDataset"),
        ({"sampler": [1]}, r"ranks get their parts without one.*torch\.multinomial\(weights"),
        ({"timeout": 5}, "waits without a limit for workers.* connect_timeout"),
        ({"batch_sampler": [[1]]}, "use batch_size"),
        ({"persistent_workers": True}, "always persist"),
        ({"colour": 1}, "unexpected keyword argument 'colour'"),
    ],
)
def test_arguments_that_do_not_apply_name_a_replacement(argument, message):
    with pytest.raises(InvalidTypeError, match=message):
        DataLoader(Dataset.range(3), **argument)


def test_replacements_of_samplers_work():
    drawn = torch.multinomial(torch.tensor([0.0, 1.0, 3.0]), 400, True)
    weighted = list(Dataset.from_tensor_slices(drawn).map(int))
    assert set(weighted) == {1, 2}
    assert 230 < weighted.count(2) < 370
    sampler = torch.utils.data.BatchSampler(range(5), 2, drop_last=False)
    batches = Dataset.from_generator(lambda: sampler).map(lambda indices: np.array(indices) * 10)
    assert values(DataLoader(batches)) == [[0, 10], [20, 30], [40]]


def test_the_repr_names_the_dataset_and_the_arguments():
    loader = DataLoader(Dataset.range(3), 2, True, seed=5, device="cpu", rank=0, world_size=2)
    assert repr(loader) == (
        f"stoker.torch.DataLoader(dataset={Dataset.range(3)!r}, batch_size=2, shuffle=True, "
        "seed=5, rank=0, world_size=2, device=device(type='cpu'))"
    )
    assert "batch_size=2" in repr(DataLoader(Dataset.range(3), 2, collate_fn=list))
    wrapped = stoker.torch.IterableDataset(Dataset.range(3), seed=5)
    assert repr(wrapped).startswith("stoker.torch.IterableDataset(<Dataset range")
    assert "seed=5" in repr(wrapped)


def test_pytorchs_defaults_of_other_arguments_are_accepted():
    assert values(DataLoader(Dataset.range(2), 2, False, num_workers=0, timeout=0)) == [[0, 1]]


@pytest.mark.parametrize(
    ("dataset", "remedy"),
    [
        ([1, 2], "from_tensor_slices"),
        (torch.utils.data.TensorDataset(torch.zeros(2)), "from_torch"),
        (Countdown(), "from_torch"),
        (IndexedSamples(), r"from_torch\(dataset\) or stoker\.grain"),
        (map(int, ()), "from_generator"),
        (stoker.torch.IterableDataset(Dataset.range(3)), "give the Dataset that it was made of"),
        (DataLoader(Dataset.range(3)), "give the Dataset that it was made of"),
        (7, "class methods of stoker.Dataset"),
    ],
    ids=["list", "torch", "subclass", "indexed", "iterator", "wrapped", "loader", "int"],
)
def test_other_datasets_are_refused_with_their_converter(dataset, remedy):
    with pytest.raises(InvalidTypeError, match=remedy):
        DataLoader(dataset)


def test_drop_last_without_batch_size_is_refused():
    with pytest.raises(InvalidArgumentError, match="drop_remainder=True"):
        DataLoader(Dataset.range(3), drop_last=True)


def test_cuda_that_is_absent_is_refused():
    if torch.cuda.is_available():
        pytest.skip("this machine has a GPU")
    with pytest.raises(InvalidArgumentError, match=r"torch\.cuda\.is_available"):
        DataLoader(Dataset.range(3), device="cuda")
    with pytest.warns(UserWarning, match="`pin_memory` has no effect"):
        DataLoader(Dataset.range(3), pin_memory=True)


# ── epochs and states ────────────────────────────────────────────────────────────────────────────
def shuffled():
    return DataLoader(Dataset.range(40).shuffle(10), batch_size=4)


def test_state_continues_the_epoch_and_those_after_it():
    loader = shuffled()
    iterator = iter(loader)
    for _ in range(3):
        next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest, following = values(iterator), values(loader)
    resumed = shuffled()
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    assert values(resumed) == rest
    assert values(resumed) == following


def test_state_after_an_abandoned_epoch_is_its_position():
    loader = shuffled()
    for _ in loader:
        break
    assert loader.state_dict()["iterator"]["position"] == 1


def test_state_of_samples_collated_here_is_after_the_last_batch():
    def make():
        return DataLoader(Dataset.range(10), batch_size=3, collate_fn=list)

    loader = make()
    iterator = iter(loader)
    next(iterator)
    resumed = make()
    resumed.load_state_dict(loader.state_dict())
    assert list(resumed) == list(iterator) == [[3, 4, 5], [6, 7, 8], [9]]


def test_state_between_epochs_is_the_next_epoch():
    loader = shuffled()
    list(loader)
    state = loader.state_dict()
    second = values(loader)
    resumed = shuffled()
    resumed.load_state_dict(state)
    assert (state["epoch"], state["iterator"]) == (1, None)
    assert values(resumed) == second


def test_state_of_another_seed_is_refused():
    loader = DataLoader(Dataset.range(9), seed=1)
    with pytest.raises(InvalidArgumentError, match="seed 1, and this one has seed 2"):
        DataLoader(Dataset.range(9), seed=2).load_state_dict(loader.state_dict())


def test_other_values_are_no_state():
    with pytest.raises(InvalidArgumentError, match="`state_dict` must be what"):
        DataLoader(Dataset.range(9)).load_state_dict({"epoch": 1})


def test_set_epoch_selects_the_order():
    loader = shuffled()
    epochs = [values(loader) for _ in range(3)]
    loader.set_epoch(1)
    assert [values(loader), values(loader)] == epochs[1:]


def test_service_has_each_element_once_in_every_epoch():
    with stoker.LocalCluster(1, threads=True) as cluster:
        dataset = Dataset.range(10).distribute(cluster, processing_mode="distributed_epoch")
        next(iter(dataset))  # as someone who looks at an element first
        loader = DataLoader(dataset, batch_size=3)
        assert [read(loader) for _ in range(3)] == [list(range(10))] * 3
        assert len(loader) == 4
        again = DataLoader(dataset, batch_size=3)
        assert read(again) == list(range(10))


def test_service_has_a_state_in_every_loop():
    with stoker.LocalCluster(1, threads=True) as cluster:
        loader = DataLoader(
            Dataset.range(10).distribute(cluster, processing_mode="distributed_epoch"), batch_size=3
        )
        with iter(loader) as iterator:
            next(iterator)
            with pytest.warns(UserWarning, match="after the last batch of an epoch") as warned:
                state = loader.state_dict()
        assert [warning.filename for warning in warned] == [__file__]
        with pytest.warns(UserWarning, match="starts again"):
            loader.load_state_dict(state)
        assert read(loader) == list(range(10))
        for _ in zip(range(len(loader)), loader, strict=False):
            pass
        assert loader.state_dict()["epoch"] == 2


def test_seed_repeats_torch_draws_on_worker_processes():
    def drawn(_):
        return torch.rand(3)

    with stoker.LocalCluster(1) as cluster:

        def read_with(seed, **options):
            dataset = Dataset.range(40).map(drawn).with_options(stoker.Options(**options))
            return values(DataLoader(dataset.distribute(cluster), batch_size=8, seed=seed))

        first = read_with(5)
        assert first == read_with(5)
        assert first != read_with(6)
        assert read_with(5, seed_globals=False) != read_with(5, seed_globals=False)
        assert read_with(None) != read_with(None)


@pytest.mark.parametrize(
    ("arguments", "steps"),
    [({}, 4), ({"collate_fn": list}, 4), ({"collate_fn": list, "drop_last": True}, 3)],
    ids=["stacked", "collated", "dropped"],
)
def test_state_after_the_last_batch_is_the_next_epoch(arguments, steps):
    loader = DataLoader(Dataset.range(10), batch_size=3, **arguments)
    assert len(loader) == steps
    for _ in zip(range(steps), loader, strict=False):
        pass
    state = loader.state_dict()
    assert (state["epoch"], state["iterator"]) == (1, None)


def test_loader_of_unknown_length_is_true():
    assert DataLoader(Dataset.range(5).filter(bool))
    assert stoker.torch.IterableDataset(Dataset.range(5).filter(bool))


def test_close_ends_an_epoch_early():
    with iter(DataLoader(Dataset.range(100).map(abs, num_parallel_calls=2))) as iterator:
        next(iterator)
        assert iterator.stats()["elements"] >= 1
    with pytest.raises(stoker.errors.FailedPreconditionError, match="closed"):
        next(iterator)


def test_a_model_trains_on_the_batches():
    torch.manual_seed(0)
    inputs = np.random.default_rng(0).normal(size=(64, 3)).astype(np.float32)
    targets = inputs @ np.array([[1.0], [2.0], [3.0]], np.float32)
    loader = DataLoader(Dataset.from_tensor_slices((inputs, targets)), batch_size=16, shuffle=True)
    model = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(30):
        for x, y in loader:
            optimizer.zero_grad()
            loss = torch.nn.functional.mse_loss(model(x), y)
            loss.backward()
            optimizer.step()
    assert loss.item() < 1e-3
