"""Opens a socket when it is imported."""

import socket

SOCKET = socket.socket()
SOCKET.close()
