"""A container of a peer: answers what `work.answer` does over HTTP/1.1, as the runtimes of OpenWhisk's containers do.

usage: serve.py PORT; says `ready` once it listens. Standard library alone, one connection after the other.
"""

import json
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

import work


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Head and body of a reply in one segment, and none that waits for another.
    wbufsize = -1
    disable_nagle_algorithm = True

    def do_POST(self) -> None:
        given = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = json.dumps(work.answer(given)).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
print("ready", flush=True)
server.serve_forever()
