"""The peers beside us: mosquitto's bridge, JetStream over a leaf, etcd without its leader, Ray's task, Restate's nodes."""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import signal
import statistics
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import places
from bench import Bench
from nats import Nats
from nodes import Failed, until
from places import Cabled, Network, Place
from restate import restate

import shared.machine
import shared.peers
from shared.namespaces import Unable
from shared.peers import process

MQTT: Final = 1883
NATS: Final = 4222
LEAF: Final = 7422
#: Events on their way at once: sent and not confirmed.
WINDOW: Final = 64
WAITING: Final = 100_000
#: How long etcd is written to before and after its leader dies, and how often.
ETCD_SECONDS: Final = 3.0
ETCD_EVERY_SECONDS: Final = 0.01
#: A write that was given to a leader who died waits for seven seconds; a client that tries again does not.
ETCD_ANSWER_SECONDS: Final = 0.5


def peers(bench: Bench) -> None:
    """Each of them by itself: one that is missing keeps no other from its turn."""
    all_ = (("mosquitto", mosquitto), ("nats-server", jetstream), ("etcd", etcd), ("ray", ray), ("restate", restate))
    for name, does in all_:
        try:
            program = shared.peers.program(bench.peers, name)
            print(f"  {name}: {bench.peers[name][1]}")
            does(bench, program)
        except Unable as problem:
            print(f"  {name}: not measured: {problem}")
        except (Failed, OSError, ValueError, KeyError, subprocess.SubprocessError) as problem:
            print(f"  {name}: not measured, because it failed: {problem!r}")


def mosquitto(bench: Bench, program: str) -> None:
    """Two brokers with a bridge at QoS 1: from a publisher at one to a subscriber at the other. On the disk is nothing."""
    events, folder = bench.rounds(20_000, 200_000), bench.folder("mosquitto")
    with Network() as network, contextlib.ExitStack() as running:
        near, far = network.place(), network.place()
        plain = f"listener {MQTT}\nallow_anonymous true\nmax_queued_messages 0\n"
        bridge = (
            f"connection far\naddress {far.address}:{MQTT}\ntopic bench/events out 1\ncleansession false\nrestart_timeout 1\n"
        )
        for name, place, text in (("far", far, plain), ("near", near, plain + bridge)):
            (folder / f"{name}.conf").write_text(text)
            command = place.command([program, "-c", str(folder / f"{name}.conf")])
            running.enter_context(process(command, folder / f"{name}.log"))
            until(f"mosquitto {name}", lambda place=place: _is_open(place, MQTT))
        # The far side says in its log who connects: then subscriptions of the bridge follow.
        until("the bridge", lambda: "far" in (folder / "far.log").read_text())
        time.sleep(2.0)
        _bridged(bench, near, far, events, "mail")
        _bridged(bench, near, far, WAITING, "catching up", far)


def _bridged(bench: Bench, near: Cabled, far: Cabled, events: int, what: str, cut: Cabled | None = None) -> None:
    """Publishes at one broker and takes at the other; with `cut` all is published while that cable is out."""
    client = [str(bench.programs.bench), "client"]
    flow = ["--events", str(events), "--window", str(WINDOW)]
    take = far.command([*client, "mqtt-handle", f"127.0.0.1:{MQTT}", *flow])
    with process(take, bench.folder("taken") / "log", stdout=subprocess.PIPE, text=True) as taking:
        assert taking.stdout is not None
        taking.stdout.readline()
        if cut is not None:
            cut.cut(True)
        push = near.command([*client, "mqtt-push", f"127.0.0.1:{MQTT}", *flow])
        sent = json.loads(subprocess.run(push, capture_output=True, text=True, check=True).stdout)
        begin = sent["first_ns"]
        if cut is not None:
            cut.cut(False)
            begin = time.monotonic_ns()
        out = taking.stdout.read()
    if not out:
        raise Failed(f"{what}: the subscriber heard nothing")
    taken = json.loads(out)
    took = 1e-9 * (taken["last_ns"] - begin)
    lost, doubled = events - taken["events"], taken["duplicates"]
    print(f"    {what}: {events} events in {took:.1f} s, {taken['events'] / took:.0f}/s; {lost} lost, {doubled} doubled")


def jetstream(bench: Bench, program: str) -> None:
    """A work queue at a leaf, which a stream of the hub has as its source; both write to the disk before they confirm."""
    events, folder = bench.rounds(5_000, 50_000), bench.folder("jetstream")
    with Network() as network, contextlib.ExitStack() as running:
        leaf, hub = network.place(), network.place()
        remotes = f'leafnodes {{ remotes: [ {{ urls: ["nats://{hub.address}:{LEAF}"] }} ], reconnect: 1s }}'
        for name, place, more in (("hub", hub, f"leafnodes {{ listen: 0.0.0.0:{LEAF} }}"), ("leaf", leaf, remotes)):
            store = f'jetstream {{ store_dir: "{folder}/{name}", domain: {name}, sync_interval: always }}'
            text = f"server_name: {name}\nlisten: 0.0.0.0:{NATS}\n{store}\n{more}\n"
            (folder / f"{name}.conf").write_text(text)
            command = place.command([program, "--config", str(folder / f"{name}.conf")])
            running.enter_context(process(command, folder / f"{name}.log"))
            until(f"nats-server {name}", lambda place=place: _is_open(place, NATS))
        at_leaf, at_hub = (running.enter_context(Nats(places.connect(place, NATS, 10.0))) for place in (leaf, hub))
        kept = {"storage": "file", "max_msgs": -1, "num_replicas": 1}
        queue = {"name": "queue", "subjects": ["queue"], "retention": "workqueue", **kept}
        until("JetStream at the leaf", lambda: at_leaf.api("STREAM.CREATE.queue", queue))
        source = {"name": "queue", "external": {"api": "$JS.leaf.API"}}
        home = {"name": "home", "retention": "limits", "sources": [source], **kept}
        until("JetStream at the hub", lambda: at_hub.api("STREAM.CREATE.home", home))
        until("its stream", lambda: at_hub.api("STREAM.INFO.home", {}))

        def arrived() -> int:
            return int(at_hub.api("STREAM.INFO.home", {})["state"]["messages"])

        _sourced(bench, leaf, events, arrived, "mail")
        _sourced(bench, leaf, events, arrived, "catching up", hub)


def _sourced(bench: Bench, leaf: Cabled, events: int, arrived: Callable[[], int], what: str, cut: Cabled | None = None) -> None:
    """Pushes at the leaf until all is at the hub; with `cut` all is pushed while that cable is out."""
    before = arrived()
    if cut is not None:
        cut.cut(True)
    push = [str(bench.programs.bench), "client", "nats-push", f"127.0.0.1:{NATS}"]
    push += ["--events", str(events), "--window", str(WINDOW)]
    sent = json.loads(subprocess.run(leaf.command(push), capture_output=True, text=True, check=True).stdout)
    begin = sent["first_ns"]
    if cut is not None:
        cut.cut(False)
        begin = time.monotonic_ns()
    until(f"{what} of JetStream", lambda: arrived() >= before + events, 120.0)
    took = 1e-9 * (time.monotonic_ns() - begin)
    print(f"    {what}: {events} events in {took:.1f} s, {events / took:.0f}/s; {arrived() - before - events} doubled")


def etcd(bench: Bench, program: str) -> None:
    """Three members of which the leader is killed: the longest time between two writes that another one confirms."""
    folder = bench.folder("etcd")
    ports = {name: (shared.machine.free_port(), shared.machine.free_port()) for name in ("one", "two", "three")}
    cluster = ",".join(f"{name}=http://127.0.0.1:{peer}" for name, (_, peer) in ports.items())
    with contextlib.ExitStack() as running:
        members = {}
        for name, (client, peer) in ports.items():
            urls = [f"--{kind}-client-urls=http://127.0.0.1:{client}" for kind in ("listen", "advertise")]
            urls += [f"--listen-peer-urls=http://127.0.0.1:{peer}", f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}"]
            command = [program, "--name", name, "--data-dir", str(folder / name), f"--initial-cluster={cluster}", *urls]
            members[name] = running.enter_context(process(command, folder / f"{name}.log"))
        until("etcd", lambda: _put(ports["one"][0]))
        status = {name: _etcd(client, "maintenance/status", {}) for name, (client, _) in ports.items()}
        leader = next(name for name, one in status.items() if one["leader"] == one["header"]["member_id"])
        other = next(client for name, (client, _) in ports.items() if name != leader)
        confirmed, killed, end = [time.monotonic()], False, time.monotonic() + 2 * ETCD_SECONDS
        while time.monotonic() < end or confirmed[-1] < end - ETCD_SECONDS:
            if not killed and time.monotonic() > end - ETCD_SECONDS:
                members[leader].send_signal(signal.SIGKILL)
                killed = True
            with contextlib.suppress(OSError, Failed, http.client.HTTPException):
                _put(other)
                confirmed.append(time.monotonic())
            if time.monotonic() > end + 60.0:
                raise Failed("no member confirms anything a minute after the leader's death")
            time.sleep(ETCD_EVERY_SECONDS)
    gap = max(later - earlier for earlier, later in itertools.pairwise(confirmed))
    print(f"    control: the leader of three is killed: {1e3 * gap:.0f} ms without a confirmed write")


def _etcd(client: int, path: str, body: dict[str, str]) -> dict[str, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", client, timeout=ETCD_ANSWER_SECONDS)
    try:
        connection.request("POST", f"/v3/{path}", json.dumps(body))
        reply = connection.getresponse()
        said = reply.read()
    finally:
        connection.close()
    if reply.status != 200:
        raise Failed(f"etcd: {reply.status} {said[:200]!r}")
    found: dict[str, Any] = json.loads(said)
    return found


def _put(client: int) -> bool:
    text = base64.b64encode(b"bench").decode()
    return bool(_etcd(client, "kv/put", {"key": text, "value": text}))


def ray(bench: Bench, program: str) -> None:
    """A cluster of two nodes on this machine: a task that does nothing, on the node where its caller is not."""
    script = Path(__file__).with_name("ray_task.py")
    command = [program, str(script), str(bench.rounds(300, 2_000))]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode != 0:
        raise Failed(done.stderr.strip()[-400:])
    found = json.loads(done.stdout.strip().rpartition("\n")[2])
    here, there = (1e3 * statistics.median(found[where]) for where in ("here", "there"))
    print(f"    forward: a task's median {here:.2f} ms where its caller is, {there:.2f} ms at the other node")


def _is_open(place: Place, port: int) -> bool:
    places.connect(place, port, 5.0).close()
    return True
