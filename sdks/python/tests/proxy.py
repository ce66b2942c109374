"""A network between client and node that can be made bad: cut, slowed, silent, or one that changes bytes."""

import contextlib
import select
import socket
import threading
import time


class Hole:
    """An address that takes no connection and refuses none, as one whose packets are lost."""

    def __init__(self):
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=0)
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        # Those that nobody takes out of the queue keep the others from coming in.
        self._waiting = []
        with contextlib.suppress(TimeoutError):
            for _ in range(100):
                self._waiting.append(socket.create_connection(("127.0.0.1", self.port), 0.1))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for waiting in (*self._waiting, self._listener):
            waiting.close()


class Proxy:
    """Hands on what comes; its attributes change that at once."""

    def __init__(self, port):
        self._port = port
        #: Bytes a second each way; none: as fast as it goes.
        self.rate = None
        #: Seconds that each piece is late.
        self.delay = 0.0
        #: Nothing is handed on, and nothing said.
        self.is_silent = False
        #: The connection is cut after so many bytes to the node, or from it.
        self.cut_up = self.cut_down = None
        #: A byte from the node at this place of a connection is changed.
        self.flip_down = None
        self.refuses = False
        self._open = set()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    @property
    def name(self):
        return f"127.0.0.1:{self.port}"

    def cut(self):
        """Ends every connection now."""
        for connection in list(self._open):
            with contextlib.suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def close(self):
        self._listener.close()
        self.cut()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            if self.refuses:
                client.close()
                continue
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client, socket.create_connection(("127.0.0.1", self._port)) as node:
            for side in (client, node):
                side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            # Small buffers: what the proxy holds back, the sender must notice.
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
            self._open |= {client, node}
            up = down = 0
            try:
                while True:
                    readable, _, _ = select.select([client, node], [], [], 1.0)
                    for side in readable:
                        if self.is_silent:
                            time.sleep(0.01)
                            continue
                        data = side.recv(16_384)
                        if not data:
                            return
                        if self.delay:
                            time.sleep(self.delay)
                        if self.rate:
                            time.sleep(len(data) / self.rate)
                        if side is client:
                            up += len(data)
                            if self.cut_up is not None and up >= self.cut_up:
                                return
                            node.sendall(data)
                        else:
                            at, down = down, down + len(data)
                            if self.flip_down is not None and at <= self.flip_down < down:
                                data = bytearray(data)
                                data[self.flip_down - at] ^= 0xFF
                            if self.cut_down is not None and down >= self.cut_down:
                                client.sendall(data[: max(0, self.cut_down - at)])
                                return
                            client.sendall(data)
            finally:
                self._open -= {client, node}
