"""What attackers say is well formed as far as it is meant to be: what is refused, is refused for its content."""

from __future__ import annotations

import itertools
import math
from pathlib import Path

import pytest

import bomb
from attacks import all_attacks, http, mqtt
from probes import p99

GUESTS = Path(__file__).parents[2] / "guests" / "prebuilt"


def test_a_bomb_is_the_good_component_with_one_function_more() -> None:
    good = (GUESTS / "hello.wasm").read_bytes()
    made = bomb.make(GUESTS / "hello.wasm", 3, 5)
    sections = [number for number, _ in bomb._sections(made)]
    assert sections == [number for number, _ in bomb._sections(good)]
    core = next(body for number, body in bomb._sections(made) if number == bomb.CORE_MODULE)
    before = next(body for number, body in bomb._sections(good) if number == bomb.CORE_MODULE)
    for which in (bomb.TYPES, bomb.FUNCTIONS, bomb.CODE):
        counts = [
            bomb._read_leb(next(body for number, body in bomb._sections(one) if number == which), 0)[0]
            for one in (before, core)
        ]
        assert counts[1] == counts[0] + 1


@pytest.mark.parametrize("number", [0, 1, 127, 128, 16_383, 16_384, 1 << 31])
def test_a_number_reads_back(number: int) -> None:
    assert bomb._read_leb(bomb.leb(number), 0) == (number, len(bomb.leb(number)))


def test_a_frame_says_its_length_kind_and_stream() -> None:
    made = http.frame(http.PING, 1, 7, b"12345678")
    assert made == b"\x00\x00\x08\x06\x01\x00\x00\x00\x07" + b"12345678"


def test_fat_heads_end_with_their_last_piece_and_never_end_the_request() -> None:
    for said in itertools.islice(http._fat_heads(), 3):
        flags = []
        while said:
            size = int.from_bytes(said[:3])
            flags.append((said[3], said[4]))
            said = said[9 + size :]
        assert flags[0] == (http.HEADERS, 0) and flags[-1] == (http.CONTINUATION, 4)
        assert all(flag == (http.CONTINUATION, 0) for flag in flags[1:-1])


def test_a_client_logs_in_with_and_without_a_name() -> None:
    assert mqtt.connect_packet("c", "", "") == b"\x10\x0e\x00\x04MQTT\x05\x02\x00\x3c\x00\x00\x01c"
    named = mqtt.connect_packet("c", "u", "p", expiry=1)
    assert named[9] == 0xC0 and named.endswith(b"\x00\x01u\x00\x01p")


def test_no_answer_is_as_late_as_can_be() -> None:
    assert p99([]) == math.inf
    assert p99([1.0] * 99 + [5.0]) == 1.0
    assert p99([1.0] * 98 + [5.0] * 2) == 5.0


def test_every_attack_says_what_it_does() -> None:
    found = all_attacks()
    assert len(found) > 20
    assert all(attack.does and name == attack.name for name, attack in found.items())
