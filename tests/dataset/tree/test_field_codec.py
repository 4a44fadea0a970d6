import msgspec
import pytest

from stoker.dataset.tree.field_codec import decode_fields, encode_fields


class _Layout(msgspec.Struct, tag="layout"):
    name: str
    data: bytes


@pytest.mark.parametrize("name", ["plain", "caf\u00e9", "caf\udce9.txt", "\udcff", "\udcc3\u20ac"])
def test_text_and_file_names_survive_encoding(name):
    fields = {"patterns": (name, "b"), "layout": _Layout(name, b"\xff"), "count": 3, "none": None}
    found = decode_fields(encode_fields(fields))
    assert found["patterns"] == [name, "b"]
    assert msgspec.convert(found["layout"], _Layout) == _Layout(name, b"\xff")
    assert (found["count"], found["none"]) == (3, None)


def test_text_that_is_no_file_name_is_an_error():
    with pytest.raises(UnicodeEncodeError):
        encode_fields({"pattern": "\ud800"})


def test_unknown_extension_is_an_error():
    with pytest.raises(msgspec.MsgspecError, match="extension of type 9"):
        decode_fields(msgspec.msgpack.encode({"a": msgspec.msgpack.Ext(9, b"")}))
