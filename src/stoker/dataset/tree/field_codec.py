"""Encoding of a node's plain fields; their text may be a file name that is not UTF-8."""

from collections.abc import Mapping
from typing import Any

import msgspec

# Type of the msgpack extension whose data is a file name that is not UTF-8.
_FILE_NAME = 1

# The form in which Python represents file names as str.
_TEXT = "utf-8", "surrogateescape"


def encode_fields(fields: Mapping[str, Any]) -> bytes:
    """Encode fields as msgpack.

    Raises:
        UnicodeEncodeError: if a field is text that is neither Unicode nor a file name.
    """
    try:
        # Nearly all fields are Unicode; only after an error each text is looked at.
        return msgspec.msgpack.encode(fields)
    except UnicodeEncodeError:
        return msgspec.msgpack.encode(_escaped(msgspec.to_builtins(fields, builtin_types=(bytes,))))


def decode_fields(data: bytes | msgspec.Raw) -> dict[str, Any]:
    """Return the fields as builtin values.

    Raises:
        msgspec.MsgspecError: if the bytes are not fields.
    """
    return msgspec.msgpack.decode(data, type=dict[str, Any], ext_hook=_from_extension)


def _escaped(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _escaped(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_escaped(item) for item in value]
    if not isinstance(value, str):
        return value
    try:
        value.encode()
    except UnicodeEncodeError:
        return msgspec.msgpack.Ext(_FILE_NAME, value.encode(*_TEXT))
    return value


def _from_extension(code: int, data: memoryview) -> str:
    if code != _FILE_NAME:
        raise msgspec.ValidationError(f"an extension of type {code} in the fields of a node")
    return bytes(data).decode(*_TEXT)
