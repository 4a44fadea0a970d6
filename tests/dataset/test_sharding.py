"""Trees and sources of static shards."""

import stoker
from stoker import Dataset
from stoker.dataset.sharding import file_sources, with_shard
from stoker.dataset.streams.execute import open_stream
from stoker.dataset.tree.node import Context, number
from stoker.dataset.tree.splits import IndexSplits, ListedSplits, ShardBy, StaticShard, Unsplittable
from tests.dataset.splits import ScriptedSplits


def _kinds(dataset: Dataset, by: ShardBy) -> list[str]:
    """Return the nodes of a shard, the last first, with those that read it in capitals."""
    root, numbers, sharded = with_shard(dataset.node, number(dataset.node), by, 3, 1)
    kinds, nodes = [], [root]
    while nodes:
        node = nodes.pop(0)
        kinds.append(node.kind.upper() if numbers[node] in sharded else node.kind)
        nodes += node.inputs
    return kinds


def _read(dataset: Dataset, by: ShardBy, index: int, files: tuple[str, ...] = ()) -> list:
    tree, numbers, nodes = with_shard(dataset.node, number(dataset.node), by, 3, index)
    listed = {n: [list(files)] * 2 for n in numbers.values()}
    shard = StaticShard(ScriptedSplits(listed), nodes)
    stream = open_stream(tree, Context(numbers=numbers, shard=shard, seed=5, make_dataset=Dataset))
    found: list = []
    while chunk := stream.next_chunk(100, 1 << 20):
        found += chunk
    return found


# ── trees ────────────────────────────────────────────────────────────────────────────────────────
def test_elements_are_divided_below_a_trailing_prefetch():
    dataset = Dataset.range(9).prefetch(1).batch(2).prefetch(1).prefetch(2)
    kinds = _kinds(dataset, ShardBy.ELEMENTS)
    assert kinds == ["prefetch", "prefetch", "shard", "batch", "prefetch", "range"]
    assert [x.tolist() for x in _read(dataset, ShardBy.ELEMENTS, 1)] == [[2, 3], [8]]


def test_only_hints_are_replaced():
    dataset = Dataset.range(9).shard(2, 0).shard(stoker.SHARD_HINT, 7).batch(2)
    assert _kinds(dataset, ShardBy.HINT) == ["BATCH", "SHARD", "shard", "range"]
    assert [x.tolist() for x in _read(dataset, ShardBy.HINT, 1)] == [[2, 8]]


def test_names_are_divided_above_their_array():
    dataset = Dataset.from_tensor_slices(list("abcde")).flat_map(Dataset.from_tensors)
    assert _kinds(dataset, ShardBy.FILES) == ["FLAT_MAP", "SHARD", "FROM_TENSOR_SLICES"]
    assert _read(dataset, ShardBy.FILES, 1) == ["b", "e"]


def test_listed_files_are_those_of_the_reader_in_each_epoch():
    dataset = Dataset.list_files("*", shuffle=False).repeat(2)
    assert _kinds(dataset, ShardBy.FILES) == ["REPEAT", "LIST_FILES"]
    assert _read(dataset, ShardBy.FILES, 1, ("x", "y")) == ["x", "y"] * 2


def test_listed_files_of_a_shard_are_shuffled_anew_in_each_epoch():
    files = tuple("abcdefgh")
    found = _read(Dataset.list_files("*").repeat(2), ShardBy.FILES, 1, files)
    first, second = found[:8], found[8:]
    assert sorted(first) == sorted(second) == list(files)
    assert first != second


def test_all_shards_shuffle_alike():
    """The nodes keep their numbers, from which they draw."""
    dataset = Dataset.range(30).shuffle(30).map(lambda x: x)
    found = [_read(dataset, ShardBy.ELEMENTS, k) for k in range(3)]
    assert sorted(x for shard in found for x in shard) == list(range(30))


def test_a_node_below_the_shard_keeps_all_elements(tmp_path):
    """What it stores is not that of one shard, so that its name may be used."""
    path = tmp_path / "cache"
    assert _read(Dataset.range(9).cache(str(path)), ShardBy.ELEMENTS, 1) == [1, 4, 7]
    above = Dataset.range(9).shard(stoker.SHARD_HINT, 0).cache(str(tmp_path / "shard"))
    assert _read(above, ShardBy.HINT, 1) == [1, 4, 7]
    assert _read(above, ShardBy.HINT, 2) == [2, 5, 8]
    assert not (tmp_path / "shard.stoker").exists()


# ── sources ──────────────────────────────────────────────────────────────────────────────────────
def test_sources_with_files_are_known():
    names = Dataset.from_tensor_slices(["a", "b"])
    numbers = Dataset.from_tensor_slices([1, 2])
    parts = [
        Dataset.list_files("*"),
        Dataset.tfrecords(["a", "b"]),
        names.map(str.upper).interleave(Dataset.from_tensors),
        names,
        numbers.flat_map(Dataset.from_tensors),
    ]
    splits = [x.splits for x in file_sources(Dataset.zip(*parts).node)]
    none = Unsplittable("it does not read files")
    assert splits == [ListedSplits(), IndexSplits(2), IndexSplits(2), none]


def test_a_dataset_of_choices_is_not_divided():
    dataset = Dataset.choose_from_datasets(
        [Dataset.list_files("a*"), Dataset.list_files("b*")], Dataset.range(2)
    )
    assert [x.kind for x in file_sources(dataset.node)] == ["list_files", "list_files"]
