from stoker.dataset.options import Options
from stoker.service.messages import DatasetReply
from stoker.service.worker.pipelines import dataset_cache
from stoker.service.worker.pipelines.dataset_cache import DatasetCache


def _cache(size: int) -> tuple[DatasetCache, list[str]]:
    fetched: list[str] = []

    def fetch(dataset_id: str) -> DatasetReply:
        fetched.append(dataset_id)
        return DatasetReply(bytes(size), None, Options(), 1, None)

    return DatasetCache(fetch), fetched


def test_a_used_dataset_is_fetched_once(monkeypatch):
    monkeypatch.setattr(dataset_cache, "IDLE_TREE_BYTES", 0)
    cache, fetched = _cache(100)
    cache.acquire("used")
    for name in ("used", "one", "two", "used"):
        cache.get(name)
    assert fetched == ["used", "one", "two"]


def test_idle_datasets_are_dropped_the_oldest_first(monkeypatch):
    monkeypatch.setattr(dataset_cache, "IDLE_TREE_BYTES", 5 << 20)
    cache, fetched = _cache(2 << 20)
    for name in ("one", "two", "three", "two"):
        cache.get(name)
    assert fetched == ["one", "two", "three"]
    for name in ("three", "two", "one"):
        cache.get(name)
    assert fetched == ["one", "two", "three", "one"]


def test_the_latest_dataset_is_kept_whatever_its_size(monkeypatch):
    monkeypatch.setattr(dataset_cache, "IDLE_TREE_BYTES", 10)
    cache, fetched = _cache(100)
    for _ in range(3):
        cache.acquire("epoch")
        cache.get("epoch")
        cache.release("epoch")
    cache.get("another")
    cache.get("epoch")
    assert fetched == ["epoch", "another", "epoch"]


def test_few_small_datasets_are_kept():
    cache, fetched = _cache(100)
    for name in map(str, range(70)):
        cache.get(name)
    del fetched[:]
    for name in ("69", "10", "0"):
        cache.get(name)
    assert fetched == ["0"]
