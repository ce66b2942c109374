"""Stands in for a node where none can be had: its HTTP API over the very code that a unit runs, in child processes.

Nothing is jailed here, so it is of use to tests only. What a node does with versions, limits and units is tested with the
node itself.
"""

import hashlib
import io
import json
import os
import struct
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from lighterage import here
from lighterage.code.python import interpreter
from lighterage.places.wire import proof_of
from lighterage.travel import calls
from lighterage.travel.classes import Classes

SOURCE = str(Path(calls.__file__).parents[2])
#: Units of one function that run at once.
UNITS_MAX = 2
#: The exit code of one whose function got no memory.
NO_MEMORY = 77
LENGTH = struct.Struct("<Q")


class StandIn:
    """A node on a port of its own. Attributes say what to do wrong."""

    def __init__(self, token="lighter_test"):
        self.token = token
        self.images = {}
        self.functions = {}
        self.python = {"version": interpreter()["python"], "numpy": interpreter()["numpy"]}
        #: What `python` becomes with the first deployment, where it is None before.
        self.base = None
        self.delay = 0.0
        #: Seconds by which its wall clock is off.
        self.skew = 0.0
        #: Called with the handler and the reply's bytes in place of sending them.
        self.break_reply = None
        self.refuse = None
        #: Status and code of the problems that it answers deployments with, one after the other, and whether in the stream.
        self.refused_deployments = []
        #: Seconds that a deployment takes, and how many there were.
        self.deploy_seconds = 0.0
        #: Whether images are larger than it takes, and how often one was sent.
        self.refuses_images = False
        self.uploads = 0
        self.deployments = 0
        self.calls = 0
        #: What it says of the nodes of its fleet; None: it belongs to none.
        self.places = None
        #: The token that it proves to know; None: its own.
        self.proves_with = None
        #: Whether it answers nothing.
        self.refuse_all = False
        #: Reports of decisions; None where it takes none.
        self.told = []
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (_Handler,), {"node": self}))
        self._server.daemon_threads = True
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        self.port = self._server.server_address[1]
        self.url = f"http://127.0.0.1:{self.port}"

    @property
    def name(self):
        return f"127.0.0.1:{self.port}"

    def close(self):
        self._server.shutdown()
        self._server.server_close()
        for function in self.functions.values():
            function.close()


class _Function:
    def __init__(self, name, manifest, image, skew):
        self.name, self.manifest, self.image = name, manifest, image
        self.deployed_ms = time.time_ns() // 1_000_000 + int(skew * 1e3)
        self._home = tempfile.TemporaryDirectory()
        with tarfile.open(fileobj=io.BytesIO(image)) as tar:
            self.about = json.load(tar.extractfile("bundle.json"))
            tar.extractall(self._home.name, filter="data")
        self._idle = []
        self._lock = threading.Lock()
        self._turns = threading.Semaphore(UNITS_MAX)

    def call(self, data):
        with self._turns:
            return self._call(data)

    def _call(self, data):
        with self._lock:
            unit = self._idle.pop() if self._idle else self._start()
        timer = threading.Timer(self.manifest["limits"]["time_ms"] / 1_000, unit.kill)
        timer.start()
        try:
            unit.stdin.write(LENGTH.pack(len(data)))
            unit.stdin.write(data)
            unit.stdin.flush()
            head = unit.stdout.read(LENGTH.size * 2)
            if len(head) < LENGTH.size * 2:
                return {-9: (504, "L3001"), NO_MEMORY: (500, "L3003")}.get(unit.wait(), (500, "L6007"))
            length, timing = LENGTH.unpack(head[:8])[0], LENGTH.unpack(head[8:])[0]
            reply, times = unit.stdout.read(length), json.loads(unit.stdout.read(timing))
        finally:
            timer.cancel()
        with self._lock:
            self._idle.append(unit)
        return reply, times

    def _start(self):
        environment = {**os.environ, "PYTHONPATH": f"{SOURCE}:{Path(__file__).parent}:{self._home.name}"}
        command = [sys.executable, "-c", "import standin; standin.serve()", json.dumps(self.about)]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment, cwd=self._home.name)

    def close(self):
        for unit in self._idle:
            unit.kill()
            unit.wait()
            unit.stdin.close()
            unit.stdout.close()
        self._home.cleanup()


def serve():
    """What a unit does: answers calls one after the other."""
    about = json.loads(sys.argv[1])
    here.enter_unit()
    source, sink = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    modules = [".".join(path.with_suffix("").parts).removesuffix(".__init__") for path in Path().rglob("*.py")]
    function, classes = calls.find(about["entry"]), Classes(modules)
    while head := source.read(LENGTH.size):
        try:
            answer = calls.answer(function, bytearray(source.read(LENGTH.unpack(head)[0])), classes)
        except MemoryError:
            os._exit(NO_MEMORY)
        data, timing = b"".join(answer.pieces), json.dumps(answer.timing).encode()
        sink.write(LENGTH.pack(len(data)) + LENGTH.pack(len(timing)) + data + timing)
        sink.flush()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    node = None
    disable_nagle_algorithm = True
    wbufsize = -1

    def date_time_string(self, timestamp=None):
        return super().date_time_string((timestamp or time.time()) + self.node.skew)

    def log_message(self, *arguments):
        pass

    def handle(self):
        try:
            super().handle()
        except (ConnectionError, ValueError):
            self.close_connection = True

    def do(self):
        length = int(self.headers.get("content-length", 0))
        body = self.rfile.read(length)
        if len(body) < length:
            self.close_connection = True
            return
        if self.node.refuse_all:
            self.close_connection = True
            return
        if self.path.startswith("/v1/identity?"):
            self.prove()
            return
        if self.headers.get("authorization") != f"Bearer {self.node.token}":
            self.problem(401, "L4005", "the token is not right")
            return
        parts = self.path.strip("/").split("/")
        getattr(self, f"on_{parts[1].partition('.')[0]}")(parts[2:], body)

    do_GET = do_PUT = do_POST = do_HEAD = do_DELETE = do

    def on_node(self, rest, body):
        said = {"version": "0.1.0", "cores": 2, "isolation": ["wasm", "process"]}
        if self.node.python is not None:
            said["python"] = self.node.python
        self.send(200, json.dumps(said).encode())

    def prove(self):
        asked = dict(parse_qsl(urlsplit(self.path).query))
        known = hashlib.sha256((self.node.proves_with or self.node.token).encode()).hexdigest()
        self.send(200, json.dumps({"proof": proof_of(known, self.node.url, asked["nonce"])}).encode())

    def on_fleet(self, rest, body):
        if self.node.places is None:
            self.problem(409, "L9116", "this node belongs to no fleet")
            return
        self.send(200, json.dumps({"fleet": "campus", "id": "f", "places": self.node.places}).encode())

    def on_decisions(self, rest, body):
        if self.node.told is None:
            self.problem(404, "L4009", "the API has no such path")
            return
        self.node.told.append(json.loads(body))
        self.send(204, b"")

    def on_openapi(self, rest, body):
        self.send(200, b"x" * 75_000)

    def on_images(self, rest, body):
        if self.command == "HEAD":
            self.send(200 if rest[0] in self.node.images else 404, b"")
            return
        self.node.uploads += 1
        if self.node.refuses_images:
            self.problem(413, "L2005", "the image is too large")
        elif hashlib.sha256(body).hexdigest() != rest[0]:
            self.problem(422, "L2006", "it has another hash")
        else:
            self.node.images[rest[0]] = body
            self.send(201, b"")

    def on_deployments(self, rest, body):
        self.node.deployments += 1
        time.sleep(self.node.deploy_seconds)
        if self.node.refused_deployments:
            status, code, is_in_stream = self.node.refused_deployments.pop(0)
            if is_in_stream:
                problem = {"status": status, "code": code, "detail": "not now"}
                self.send(200, json.dumps({"step": "failed", "problem": problem}).encode())
            else:
                self.problem(status, code, "not now")
            return
        self.node.python = self.node.python or self.node.base
        for name, manifest in json.loads(body)["function"].items():
            self.node.functions[name] = _Function(name, manifest, self.node.images[manifest["image"]], self.node.skew)
        self.send(200, b'{"step":"checked"}\n{"step":"done","functions":[]}\n')

    def on_functions(self, rest, body):
        if not rest:
            described = [
                {"name": name, "versions": [{"deployed_ms": function.deployed_ms}]}
                for name, function in self.node.functions.items()
            ]
            self.send(200, json.dumps(described).encode())
            return
        function = self.node.functions.get(rest[0])
        if function is None:
            self.problem(404, "L2001", f"there is no function {rest[0]!r}")
        elif self.command == "DELETE":
            self.node.functions.pop(rest[0]).close()
            self.send(204, b"")
        else:
            self.call(function, body)

    def call(self, function, body):
        self.node.calls += 1
        if self.node.refuse:
            self.problem(*self.node.refuse)
            return
        time.sleep(self.node.delay)
        if len(body) > function.manifest["limits"]["body_bytes"]:
            self.problem(413, "L3006", "the body is too large")
            return
        first, second = function.call(body)
        if isinstance(first, int):
            self.problem(first, second, "the unit ended")
            return
        timing = ", ".join(f"{name};dur={seconds * 1e3:.3f}" for name, seconds in {"queue": self.node.delay, **second}.items())
        if self.node.break_reply:
            self.node.break_reply(self, first)
            return
        self.send(200, first, {"server-timing": timing})

    def problem(self, status, code, detail):
        self.send(status, json.dumps({"status": status, "code": code, "detail": detail, "title": detail}).encode())

    def send(self, status, body, headers=()):
        self.send_response(status)
        for name, value in dict(headers).items():
            self.send_header(name, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()
