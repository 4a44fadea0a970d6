"""A process that reads: ``python -P -m stoker.testing.child LIFELINE CALLS``.

LIFELINE is the descriptor of a socket whose other end the parent has: this process ends with it.
CALLS is that of a connection, on which `reader_process.ReaderProcess` sends the dataset, and then
calls of the methods of a `Reader`, each of which is answered by its result or its error.
"""

import socket
import sys
import warnings
from multiprocessing.connection import Connection

from stoker.errors import StokerError, to_record
from stoker.service.process.lifeline import die_with
from stoker.testing.reader import Reader


def main(lifeline: int, calls: int) -> None:
    """Answer calls until the parent closes the connection."""
    parent = socket.socket(fileno=lifeline)  # open to the end: the thread of the lifeline polls it
    die_with(parent)
    connection = Connection(calls)
    reader = Reader(connection.recv_bytes())
    warnings.simplefilter("ignore")  # the error names what a warning about a state would
    while True:
        try:
            method, arguments, options = connection.recv()
        except EOFError:
            return
        try:
            connection.send((getattr(reader, method)(*arguments, **options), None))
        except StokerError as error:
            connection.send((None, to_record(error)))


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
