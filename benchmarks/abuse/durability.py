"""What was promised, after the node or its disk was ended in the middle: events, webhooks, letters, jails."""

from __future__ import annotations

import contextlib
import http.client
import http.server
import json
import os
import random
import socket
import threading
import time
from pathlib import Path
from typing import Final

from attacks import mqtt
from machine import Disk, closing_all, slow_disk
from node import Dead, Node

#: Milliseconds that a sync takes longer, one after the other.
SYNC_MS: Final = (0, 5, 20, 100)
CLIENTS: Final = 12
#: Tables of which one bit is flipped.
TABLES: Final = 3
QUEUE: Final = '[queue.food]\ndeduplicate = "1d"\nevents_max = 10000000\n\n'
#: Users of a process unit have numbers from here on.
JAIL_USER: Final = 0x7000_0001
#: What functions of `apps/staying` do, each at a path of its own.
WAYS_TO_STAY: Final = ("told", "number", "program", "children", "signals")
FRUITLESS: Final = (OSError, ValueError, KeyError, http.client.HTTPException, Dead)


def project(folder: Path, manifest: str, guests: Path, *images: str) -> Path:
    """A folder to be deployed."""
    folder.mkdir(parents=True, exist_ok=True)
    for image in images:
        (folder / image).write_bytes((guests / image).read_bytes())
    (folder / "lighter.toml").write_text(manifest)
    return folder


def acked_lost(lighter: str, folder: Path, guests: Path, kills: int) -> tuple[int, int]:
    """Events that were confirmed and are gone, and how many were confirmed.

    Twelve clients send each event on two connections at once, as who is impatient does; the node is killed in the middle.
    """
    lost = total = 0
    library = slow_disk(folder)
    manifest = QUEUE + '[function.eater]\nimage = "sift.wasm"\nqueue = "food"\nunits.maximum = 0\n'
    app = project(folder / "food", manifest, guests, "sift.wasm")
    for ms in SYNC_MS:
        environment = {"LD_PRELOAD": str(library), "SLOW_SYNC_MS": str(ms)}
        node = Node(lighter, folder / f"acked-{ms}", environment=environment, options=("--short-runs-max", "0"))
        node.start()
        node.deploy(app)
        confirmed: set[str] = set()
        for turn in range(kills):
            confirmed |= _send_until_killed(node, f"{ms}-{turn}")
            node.start()
        lost += len(confirmed - _ids(node, "food"))
        total += len(confirmed)
        node.stop()
    return lost, total


def _send_until_killed(node: Node, turn: str) -> set[str]:
    """Ids of the events that were confirmed before the node was killed."""
    confirmed: set[str] = set()
    address, token = node.address("api"), node.token()
    ended = threading.Event()

    def send(client: int) -> None:
        with contextlib.suppress(OSError):
            pair = [socket.create_connection(address, 5) for _ in range(2)]
            number = 0
            while not ended.is_set():
                number += 1
                name = f"{turn}-{client}-{number}"
                for one in pair:
                    one.sendall(_push(name, token))
                    time.sleep(0.0003)
                for one in reversed(pair):
                    if b" 201 " in one.recv(65_536).split(b"\r\n", 1)[0]:
                        confirmed.add(name)

    threads = [threading.Thread(target=send, args=(client,), daemon=True) for client in range(CLIENTS)]
    for thread in threads:
        thread.start()
    time.sleep(random.uniform(0.15, 0.4))
    node.kill()
    ended.set()
    for thread in threads:
        thread.join(5)
    return confirmed


def _push(name: str, token: str) -> bytes:
    return (
        f"POST /v1/queues/food/events HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\nce-specversion: 1.0\r\n"
        f"ce-id: {name}\r\nce-source: /bench\r\nce-type: t\r\ncontent-length: 1\r\n\r\nx"
    ).encode()


def _ids(node: Node, queue: str) -> set[str]:
    """Ids of all that waits in a queue."""
    found: set[str] = set()
    after = ""
    while True:
        status, body = node.get(f"/v1/queues/{queue}/events?limit=1000{after}")
        page = json.loads(body)
        if status != 200:
            raise Dead(f"the events of {queue}: {page}")
        found |= {entry["event"]["id"] for entry in page["events"]}
        if not page["next"]:
            return found
        after = f"&after={page['next']}"


class Receiver:
    """Takes webhooks, and notes under which keys each payload came."""

    def __init__(self) -> None:
        self.keys: dict[str, set[str]] = {}
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0))).decode(errors="replace")
                receiver.keys.setdefault(body, set()).add(self.headers.get("idempotency-key", ""))
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}/"
        threading.Thread(target=self._server.serve_forever, daemon=True).start()

    def changed(self) -> int:
        """Payloads that came under more than one key."""
        return sum(len(keys) > 1 for keys in self.keys.values())

    def close(self) -> None:
        self._server.shutdown()


def webhook_id_changed(lighter: str, folder: Path, guests: Path, cuts: int) -> tuple[int, int]:
    """Events whose webhook came under two idempotency keys, and how many came at all.

    A client publishes with QoS 2, and goes on with what was not confirmed; each message passes a queue and leaves by a webhook.
    """
    folder.mkdir(exist_ok=True)
    disk = Disk(folder)
    receiver = Receiver()
    manifest = (
        '[function.first]\nimage = "relay.wasm"\nmqtt = "in/#"\ngrants.push = ["out"]\nconfig.to = "out"\n\n'
        f'[queue.out]\n\n[sink.hook]\nqueue = "out"\nwebhook.url = "{receiver.url}"\n'
    )
    app = project(folder / "hooked", manifest, guests, "relay.wasm")
    node = Node(lighter, disk.folder / "data", options=("--mqtt", "127.0.0.1:0", "--short-runs-max", "0"))
    with closing_all(disk), contextlib.closing(receiver):
        node.start()
        node.deploy(app)
        unconfirmed: list[mqtt.Message] = []
        number = 0
        for _ in range(cuts):
            number = _publish_until(node, unconfirmed, number, random.uniform(0.1, 0.5))
            disk.cut(node.pid)
            node.kill()
            disk.restore()
            node.start()
        _publish_until(node, unconfirmed, number, 1.0)
        node.stop()
        return receiver.changed(), len(receiver.keys)


def _publish_until(node: Node, unconfirmed: list[mqtt.Message], number: int, seconds: float) -> int:
    """Publishes for a while, one message at a time; what was not confirmed the last time comes first."""
    deadline = time.monotonic() + seconds
    with contextlib.suppress(*FRUITLESS):
        made = mqtt.log_in(node.address("mqtt"), "cut", "", "", 5.0, expiry=3_600)
        made.settimeout(2)
        with made:
            while time.monotonic() < deadline:
                if not unconfirmed:
                    number += 1
                    unconfirmed.append(mqtt.Message(number, f"message-{number}".encode()))
                if unconfirmed[0].go_on(made, "in/x"):
                    unconfirmed.pop(0)
    return number


def bit_flip_refused(lighter: str, folder: Path, guests: Path) -> tuple[int, int]:
    """Writes to other queues and buckets that were refused after one bit of a table flipped, and how many there were."""
    node = Node(lighter, folder / "flipped")
    manifest = "[queue.food]\nevents_max = 1000000\n\n[queue.other]\nevents_max = 1000000\n"
    handlers = "".join(
        f'[function.{name}]\nimage = "sift.wasm"\nqueue = "{queue}"\nunits.maximum = 0\n\n'
        for name, queue in (("a", "food"), ("b", "other"))
    )
    node.start()
    node.deploy(project(folder / "flip", handlers + manifest, guests, "sift.wasm"))
    for _ in range(30):
        _push_many(node, "food", 1_000)
    node.stop()
    tables = sorted((node.folder / "state").rglob("tables/*"), key=lambda path: path.stat().st_size)[-TABLES:]
    if not tables:
        raise Dead("the state has no table to be damaged")
    for table in tables:
        data = bytearray(table.read_bytes())
        data[len(data) // 2] ^= 1
        table.write_bytes(data)
    node.start()
    refused = 0
    for _ in range(40):
        refused += _push_many(node, "other", 1_000) != 201
    if node.command("queue", "purge", "food").returncode:
        refused += 1
    node.kill()
    node.start()
    refused += sum(_push_many(node, "other", 1_000) != 201 for _ in range(10))
    node.stop()
    return refused, 51


def _push_many(node: Node, queue: str, count: int) -> int:
    try:
        return node.request("api", "POST", f"/v1/queues/{queue}/events?count={count}", os.urandom(1_000))[0]
    except FRUITLESS:
        return 0


def poison_restarts(lighter: str, folder: Path, guests: Path) -> float:
    """How often a node died of one event until it left that event alone. The node is killed while it handles it."""
    node = Node(lighter, folder / "poison", options=("--drain-seconds", "0"))
    manifest = '[function.eater]\nimage = "attack.wasm"\nqueue = "food"\nlimits.cpu_ms = 60000\nlimits.time_ms = 60000\n'
    node.start()
    node.deploy(project(folder / "poisoned", manifest, guests, "attack.wasm"))
    node.request("api", "POST", "/v1/queues/food/events", b"loop")
    for restarts in range(20):
        if not _is_handled(node):
            node.stop()
            return restarts
        node.kill()
        node.start()
    node.kill()
    return float("inf")


def _is_handled(node: Node) -> bool:
    """Whether the event is being handled, or will be; false once it is a dead letter."""
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline:
        with contextlib.suppress(*FRUITLESS):
            queue = json.loads(node.get("/v1/queues/food")[1])
            if queue.get("dead", 0):
                return False
            if queue.get("is_paused") or queue.get("paused"):
                # Somebody looks at a node that died so often, and lets it go on.
                node.command("queue", "resume")
            if node.metric("lighter_units_running") >= 1:
                return True
        time.sleep(0.05)
    raise Dead("the event is neither handled nor dead")


def jail_leftovers(lighter: str, folder: Path, apps: Path, python: str) -> int:
    """Processes of jails that are there a second after the node was killed, of functions that do what they can to stay."""
    others = _jailed()
    node = Node(lighter, folder / "jails", options=("--python", python))
    node.start()
    try:
        # Deploying loads each, and so does a call where one has become another program since.
        node.deploy(apps / "staying")
        calls = [threading.Thread(target=_call, args=(node, f"/stays/{way}"), daemon=True) for way in WAYS_TO_STAY]
        for call in calls:
            call.start()
        time.sleep(2)
        running = _jailed() - others
    finally:
        node.kill()
    time.sleep(1)
    if len(running) < 2 * len(WAYS_TO_STAY):
        raise Dead(f"only {len(running)} processes were there to be left")
    return len(_jailed() - others)


def _call(node: Node, path: str) -> None:
    with contextlib.suppress(*FRUITLESS):
        node.request("gate", "POST", path, b"")


def _jailed() -> set[int]:
    """Processes whose user is one of those of process units; one that has ended and waits to be counted is none."""
    found = set()
    for status in Path("/proc").glob("[0-9]*/status"):
        with contextlib.suppress(OSError, ValueError, KeyError):
            fields = dict(line.split(":", 1) for line in status.read_text().splitlines())
            if int(fields["Uid"].split()[0]) >= JAIL_USER and fields["State"].split()[0] != "Z":
                found.add(int(status.parent.name))
    return found
