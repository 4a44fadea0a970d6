"""A cut network between two sockets of this machine: the kernel drops all that arrives."""

import ctypes
import socket
import struct

_SO_ATTACH_FILTER = 26
_DROP_ALL = struct.pack("HBBI", 0x06, 0, 0, 0)  # BPF_RET | BPF_K: accept 0 bytes


def cut(*sockets: socket.socket) -> None:
    """Drop every packet to the `sockets` from now on; neither end is notified. Linux only."""
    program = ctypes.create_string_buffer(_DROP_ALL)
    for sock in sockets:
        sock.setsockopt(
            socket.SOL_SOCKET,
            _SO_ATTACH_FILTER,
            struct.pack("HL", 1, ctypes.addressof(program)),
        )
