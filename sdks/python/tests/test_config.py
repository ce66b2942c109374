"""Which nodes there are and which token they get: as the command line decides it."""

import json
import re
from pathlib import Path

import pytest

from lighterage import Limits, config


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "node.json").write_text(json.dumps({"api": "http://127.0.0.1:8701/", "pid": 7}))
    (tmp_path / "token").write_text("lighter_secret\n")
    monkeypatch.setenv("LIGHTER_DATA", str(tmp_path))
    return tmp_path


def test_the_node_of_the_data_folder_is_found_with_its_token(folder):
    assert config.found() == [config.Address("http://127.0.0.1:8701", "lighter_secret")]


def test_its_token_goes_to_no_other_node(folder, monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a.example.org:8701, 127.0.0.1:9000")
    assert config.found() == [
        config.Address("https://a.example.org:8701", None),
        config.Address("http://127.0.0.1:9000", None),
    ]


def test_a_token_does_not_travel_unencrypted(folder, monkeypatch):
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_other")
    assert config.address("https://node:1").token == "lighter_other"
    with pytest.raises(config.ConfigInvalid, match="unencrypted"):
        config.address("http://10.1.2.3:8701")
    assert config.address("http://10.1.2.3:8701", plain_text=True).token == "lighter_other"
    monkeypatch.setenv("LIGHTERAGE_PLAIN_TEXT", "1")
    assert config.address("http://10.1.2.3:8701").token == "lighter_other"
    assert config.address("http://[::1]:8701").token == "lighter_other"


@pytest.mark.parametrize("wrong", ["ftp://x", "http://x/path", "http://user@x", "http://"])
def test_what_is_no_address_says_so(wrong):
    with pytest.raises(config.ConfigInvalid, match="not the address"):
        config.address(wrong)


def test_no_node_is_no_error():
    assert config.found() == []


def test_arguments_may_be_as_long_as_a_node_has_room_for():
    """By default more was sent than any node took, each time in vain."""
    node = (Path(__file__).parents[3] / "docs/node.md").read_text()
    (megabytes,) = re.findall(r"`bodies_bytes_max` \| (\d+) MiB", node)
    assert Limits().body_bytes == int(megabytes) << 20
