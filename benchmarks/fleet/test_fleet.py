"""The parts that figures rest on: gaps, percentiles, components made larger, and cables that leave nothing behind."""

import json
import socket
import subprocess
import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import calling
import joining
import places
from load import Call, p99
from nats import Nats
from nodes import Failed

from shared.namespaces import Unable

GUESTS = Path(__file__).parents[2] / "guests" / "prebuilt"


def steady(*broken, slow=()):
    """Calls each hundredth of a second, from 0 to 2; some fail half a second later, some are answered then."""
    calls = []
    for number in range(200):
        due = number / 100
        late = 0.5 if number in broken or number in slow else 0.001
        calls.append(Call(due, due + late, 0 if number in broken else 200))
    return calls


@pytest.mark.parametrize(
    ("calls", "gap"),
    [
        (steady(), 0.01),
        # From the death, at the beginning, until the last failure is over.
        (steady(10, 50), 1.0),
        (steady(slow=(20,)), 0.5),
        # Nobody is answered for the first second.
        (steady()[100:], 1.001),
    ],
)
def test_a_gap_is_the_longest_that_callers_notice(calls, gap):
    assert calling.longest_gap(calls, 0.0) == pytest.approx(gap, abs=1e-6)


def test_a_percentile_counts_from_when_a_call_was_due():
    assert p99(steady(slow=(7, 8, 9))) == pytest.approx(0.5)
    assert p99(steady(slow=(7,))) == pytest.approx(0.001)
    assert p99([]) == float("inf")


def test_a_component_is_filled_to_its_size_with_a_section_that_others_skip():
    component = (GUESTS / "sift.wasm").read_bytes()
    one, other = joining.filled(component), joining.filled(component)
    assert one.startswith(component) and one != other
    assert joining.COMPONENT_BYTES - 3 <= len(one) == len(other) <= joining.COMPONENT_BYTES
    section = one[len(component) :]
    length, at = 0, 1
    for shift in range(0, 35, 7):
        length |= (section[at] & 0x7F) << shift
        at += 1
        if section[at - 1] < 0x80:
            break
    assert section[0] == 0 and length == len(section) - at


def answer(number, document):
    body = json.dumps(document).encode()
    return b"MSG _INBOX.bench.%d 1 %d\r\n%s\r\n" % (number, len(body), body)


def test_a_request_to_nats_passes_over_what_is_no_answer():
    ours, theirs = socket.socketpair()
    said = []

    def serve():
        theirs.sendall(b'INFO {"server_id":"x"}\r\n')
        lines = theirs.makefile("rb")
        said.extend(lines.readline() for _ in range(3))
        lines.readline()
        theirs.sendall(b"PING\r\n" + answer(0, {"state": 6}) + answer(1, {"state": 7}))
        said.append(lines.readline())
        lines.readline()
        lines.readline()
        theirs.sendall(answer(2, {"error": {"code": 404}}))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    with Nats(ours) as client:
        assert client.api("STREAM.INFO.home", {}) == {"state": 7}
        with pytest.raises(Failed, match="404"):
            client.api("STREAM.INFO.none", {})
    assert said[1:] == [b"SUB _INBOX.bench.* 1\r\n", b"PUB $JS.API.STREAM.INFO.home _INBOX.bench.1 2\r\n", b"PONG\r\n"]


def test_a_cut_cable_carries_nothing_and_nothing_is_left_behind():
    try:
        with places.Network() as network:
            one, two = network.place(), network.place()
            with two.inside():
                server = socket.create_server((two.address, 7), reuse_port=False)
            server.settimeout(10)
            with one.inside():
                client = socket.create_connection((two.address, 7), 10)
            accepted, _ = server.accept()
            before = two.carried()
            client.sendall(b"hello")
            assert accepted.recv(5) == b"hello" and two.carried() > before
            two.cut(True)
            client.sendall(b"again")
            accepted.settimeout(0.3)
            with pytest.raises(TimeoutError):
                accepted.recv(5)
            two.cut(False)
            accepted.settimeout(60)
            assert accepted.recv(5) == b"again", "the connection outlives the cut"
            for one in (client, accepted, server):
                one.close()
    except Unable as problem:
        pytest.skip(f"namespaces: the fleet's cables: {problem}")
    left = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    assert network.mark not in left
