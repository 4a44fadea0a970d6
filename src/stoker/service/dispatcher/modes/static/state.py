"""The recorded state of static sharding."""

from collections import Counter

from stoker.dataset.tree.splits import ShardBy
from stoker.service.dispatcher.modes.state import ModeState


class _WholeShards:
    missing: set[int]
    whole: Counter[int]


class ShardState(ModeState, _WholeShards, tag=True, kw_only=True):
    """Shards of an iteration, one for each place of a worker.

    Attributes:
        shards: the number of shards.
        by: what they divide.
        missing: the shards of which no task is whole.
        whole: shard → the number of its whole tasks.
    """

    shards: int
    by: ShardBy

    def __post_init__(self) -> None:
        self.missing, self.whole = set(range(self.shards)), Counter()

    def count_whole(self, place: int | None, sign: int) -> None:
        """Count a task whose shard clients can read whole, or have."""
        assert place is not None
        self.whole[place] += sign
        if self.whole[place]:
            self.missing.discard(place)
        else:
            self.missing.add(place)
