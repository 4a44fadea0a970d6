"""The positions of consumers: together they are those of the epoch, but for a short last step."""

import pytest

from stoker.dataset.tree.splits import ENDLESS
from stoker.service.client.wants.epoch_share import EpochShare


@pytest.mark.parametrize(("count", "together"), [(1, 1), (3, 1), (3, 3), (6, 2), (6, 3), (12, 4)])
@pytest.mark.parametrize("base", [0, 1, 5])
def test_consumers_read_each_position_of_complete_steps(
    count: int, together: int, base: int
) -> None:
    for total in range(30):
        shares = [
            EpochShare(index=index, count=count, base=base, together=together)
            for index in range(count)
        ]
        lengths = [share.length(total) for share in shares]
        found = [s.position(k) for s, n in zip(shares, lengths, strict=True) for k in range(n)]
        left = max(0, total - base)
        assert sorted(found) == list(range(base, base + left - left % together))
        for first in range(0, count, together):
            assert len(set(lengths[first : first + together])) == 1


def test_epochs_without_end_have_no_last_step() -> None:
    assert EpochShare(index=1, count=2, base=9, together=2).length(ENDLESS) == ENDLESS
