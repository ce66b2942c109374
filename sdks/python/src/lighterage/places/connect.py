"""A TCP connection to a host, which another thread can end before it is there.

`create_connection` of the standard library tells nobody of its socket until it is connected: a call that is no longer
wanted would wait for as long as a host that drops packets lets it.

    addresses ─▶ socket ─▶ connect, begun ─▶ `opens` is told ─▶ waited for ─▶ connected, or the next address
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import time
from collections.abc import Callable
from typing import Any, Final

#: Seconds between two looks at whether a connection is still wanted. Linux ends the wait for one that is shut down;
#: not every system does.
LOOK_SECONDS: Final = 0.05
#: What the system says of a connection that it has begun to open.
_BEGUN: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK)


def connect(host: str, port: int, seconds: float, opens: Callable[[socket.socket], None]) -> socket.socket:
    """A connection to the first of the host's addresses that takes one. Each has so many seconds, and so has each use
    of the socket after that.

    `opens` is told of a socket that is waited for, and raises where nobody wants it any more. The look-up of a name
    comes before there is a socket, and nothing ends it.

    Raises OSError, of the last address.
    """
    *others, last = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    for address in others:
        with contextlib.suppress(OSError):
            return _connected(address, seconds, opens)
    return _connected(last, seconds, opens)


def _connected(address: tuple[Any, ...], seconds: float, opens: Callable[[socket.socket], None]) -> socket.socket:
    family, kind, protocol, _, place = address
    until = time.monotonic() + seconds
    connection = socket.socket(family, kind, protocol)
    try:
        connection.setblocking(False)
        problem = connection.connect_ex(place)
        if problem in _BEGUN:
            _wait(connection, until, opens)
            problem = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if problem:
            raise OSError(problem, os.strerror(problem))
        connection.settimeout(seconds)
    except BaseException:
        connection.close()
        raise
    return connection


def _wait(connection: socket.socket, until: float, opens: Callable[[socket.socket], None]) -> None:
    """Until the connection is there or has failed. Raises TimeoutError past `until`, of the monotonic clock."""
    with selectors.DefaultSelector() as selector:
        selector.register(connection, selectors.EVENT_WRITE)
        while (left := until - time.monotonic()) > 0:
            opens(connection)
            if selector.select(min(left, LOOK_SECONDS)):
                return
    raise TimeoutError("timed out")
