import pytest
from hypothesis import given
from hypothesis import strategies as st

from stoker.errors import DataLossError, FailedPreconditionError
from stoker.service.journal.blocks import VERSION, BlockKind, JournalBlock, decode_block, pack

BLOCK = JournalBlock(BlockKind.UNITS, b"12345678", 7, 20, [b"first", b"", b"third"])


@given(st.lists(st.binary(max_size=50)), st.sampled_from(BlockKind))
def test_a_block_is_decoded_as_it_was(items, kind):
    block = JournalBlock(kind, b"12345678", 3, 2**40, items)
    assert decode_block(block.encode(), "x") == block


def test_every_changed_byte_of_a_block_is_noticed():
    data = BLOCK.encode()
    for at in range(len(data)):
        for mask in (1, 0x80, 0xFF):
            changed = bytearray(data)
            changed[at] ^= mask
            with pytest.raises((DataLossError, FailedPreconditionError), match="here"):
                decode_block(bytes(changed), "here")


def test_every_truncated_block_is_noticed():
    data = BLOCK.encode()
    for size in range(len(data)):
        with pytest.raises(DataLossError, match="here is damaged"):
            decode_block(data[:size], "here")
    with pytest.raises(DataLossError):
        decode_block(data + b"\0", "here")


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_block_of_another_version_names_the_versions(version):
    data = bytearray(BLOCK.encode())
    data[4] = version
    expected = rf"version {version} .* reads {VERSION}; use the stoker that wrote it"
    with pytest.raises(FailedPreconditionError, match=expected):
        decode_block(bytes(data), "here")


def test_pack_bounds_groups_and_keeps_order():
    items = [b"a" * size for size in (3, 3, 3, 20, 1, 9, 1)]
    groups = list(pack(items, 10))
    assert [[len(item) for item in group] for group in groups] == [[3, 3, 3], [20], [1, 9], [1]]
    assert list(pack([], 10)) == []
