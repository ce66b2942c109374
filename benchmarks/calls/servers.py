"""Servers of the peers that are libraries: `servers.py http|rpyc|tcp PORT`."""

from __future__ import annotations

import pickle
import socket
import struct
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import functions


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    # Head and body leave together.
    wbufsize = -1

    def do_POST(self) -> None:
        name, arguments = pickle.loads(self.rfile.read(int(self.headers["content-length"])))
        body = pickle.dumps(getattr(functions, name)(*arguments), protocol=5)
        self.send_response_only(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        return


def http(port: int) -> None:
    ThreadingHTTPServer(("127.0.0.1", port), _Handler).serve_forever()


def rpyc(port: int) -> None:
    import rpyc as library
    from rpyc.utils.server import ThreadedServer

    class Service(library.Service):  # type: ignore[misc]
        exposed_nothing = staticmethod(functions.nothing)
        exposed_task = staticmethod(functions.task)

        @staticmethod
        def exposed_echo(array: Any) -> Any:
            return functions.echo(library.classic.obtain(array))

    ThreadedServer(Service, hostname="127.0.0.1", port=port, protocol_config={"allow_pickle": True}).start()


def tcp(port: int) -> None:
    with socket.create_server(("127.0.0.1", port)) as server:
        while True:
            connection, _ = server.accept()
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            with connection:
                _echo(connection)


def _echo(connection: socket.socket) -> None:
    while head := connection.recv(8, socket.MSG_WAITALL):
        data = bytearray(struct.unpack("<Q", head)[0])
        view, at = memoryview(data), 0
        while at < len(data):
            at += connection.recv_into(view[at:])
        connection.sendall(data)


if __name__ == "__main__":
    {"http": http, "rpyc": rpyc, "tcp": tcp}[sys.argv[1]](int(sys.argv[2]))
