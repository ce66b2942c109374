"""Which nodes there are and which token they get: as the command line decides it."""

import json
import re
import socket
import threading
from pathlib import Path

import pytest

import work
from lighterage import Limits, connect
from lighterage.errors import NodeUnproven
from lighterage.places import config, runtime
from lighterage.places.wire import Api, proof_of


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "node.json").write_text(json.dumps({"api": "http://127.0.0.1:8701/", "pid": 7}))
    (tmp_path / "token").write_text("lighter_secret\n")
    monkeypatch.setenv("LIGHTER_DATA", str(tmp_path))
    return tmp_path


def test_the_node_of_the_data_folder_is_found_with_its_token(folder):
    assert config.found() == [config.Address("http://127.0.0.1:8701", "lighter_secret", proves=True)]


def test_its_token_goes_to_no_other_node(folder, monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a.example.org:8701, 127.0.0.1:9000")
    assert config.found() == [
        config.Address("https://a.example.org:8701", None),
        config.Address("http://127.0.0.1:9000", None),
    ]


def test_a_token_does_not_travel_unencrypted(folder, monkeypatch):
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_other")
    monkeypatch.setenv("LIGHTERAGE_SHARE_TOKEN", "1")
    assert config.address("https://node:1").token == "lighter_other"
    with pytest.raises(config.ConfigInvalid, match="unencrypted"):
        config.address("http://10.1.2.3:8701")
    assert config.address("http://10.1.2.3:8701", plain_text=True).token == "lighter_other"
    monkeypatch.setenv("LIGHTERAGE_PLAIN_TEXT", "1")
    assert config.address("http://10.1.2.3:8701").token == "lighter_other"
    assert config.address("http://[::1]:8701").token == "lighter_other"


def test_one_token_is_not_given_to_several_nodes(folder, monkeypatch):
    """The second of `LIGHTERAGE_NODES` got the first one's token, and could use it there."""
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://b:2")
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_one")
    with pytest.raises(config.ConfigInvalid, match="https://a:1 and to https://b:2") as refused:
        config.found()
    assert "lighter_one" not in str(refused.value)
    assert refused.value.code == "L9003"
    # The same one twice is one node.
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://A:1/")
    assert {node.token for node in config.found()} == {"lighter_one"}
    monkeypatch.setenv("LIGHTERAGE_SHARE_TOKEN", "1")
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://b:2")
    assert [node.token for node in config.found()] == ["lighter_one", "lighter_one"]


def test_nor_to_one_after_the_other(folder, monkeypatch):
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_in_turn")
    assert config.address("https://a:1").token == "lighter_in_turn"
    with pytest.raises(config.ConfigInvalid, match="LIGHTERAGE_TOKENS"):
        config.address("https://b:2")
    assert config.address("https://b:2", token="lighter_of_b").token == "lighter_of_b"
    assert config.address("https://a:1").token == "lighter_in_turn"
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_another")
    assert config.address("https://b:2").token == "lighter_another"


def test_a_call_says_what_is_wrong_each_time_and_does_not_run_here_in_silence(monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://b:2")
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_of_calls")
    for _ in range(2):
        with pytest.raises(config.ConfigInvalid, match="LIGHTER_TOKEN is one token"):
            work.double(2)


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_certificates_that_cannot_be_read_are_said_by_each_call(text, tmp_path, monkeypatch):
    """The first call ended with FileNotFoundError, and all others ran here in silence."""
    path = tmp_path / "ca.pem"
    if text is not None:
        path.write_text(text)
    monkeypatch.setenv("LIGHTERAGE_NODES", "http://127.0.0.1:9,https://a:1")
    monkeypatch.setenv("LIGHTERAGE_CA_CERT", str(path))
    for _ in range(2):
        with pytest.raises(config.ConfigInvalid, match=re.escape(str(path))):
            work.double(2)
    assert not runtime.current.has_nodes, "a part of them is none of them"
    with pytest.raises(config.ConfigInvalid, match="cannot be read"):
        connect("https://a:1", ca_file=str(path))


def test_tokens_by_address(folder, monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,b.example.org:2,127.0.0.1:8701,https://c:3")
    monkeypatch.setenv("LIGHTERAGE_PLAIN_TEXT", "1")
    monkeypatch.setenv("LIGHTERAGE_TOKENS", "https://a:1/=lighter_a, http://B.example.org:2=lighter_b=")
    monkeypatch.setenv("LIGHTER_TOKEN", "")
    assert [node.token for node in config.found()] == ["lighter_a", "lighter_b=", "lighter_secret", None]
    # Of those that are left one may have the token without a name.
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://d:4")
    monkeypatch.setenv("LIGHTER_TOKEN", "lighter_of_d")
    assert [node.token for node in config.found()] == ["lighter_a", "lighter_of_d"]


def test_a_file_of_tokens_is_read_if_nobody_else_may(tmp_path, monkeypatch):
    path = tmp_path / "tokens"
    path.write_text("# both of them\nhttps://a:1=lighter_a\n\nhttps://b:2=lighter_b\n")
    path.chmod(0o600)
    monkeypatch.setenv("LIGHTERAGE_TOKENS_FILE", str(path))
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://b:2")
    assert [node.token for node in config.found()] == ["lighter_a", "lighter_b"]
    for mode in (0o640, 0o604, 0o620):
        path.chmod(mode)
        with pytest.raises(config.ConfigInvalid, match="chmod 600"):
            config.found()
    path.unlink()
    with pytest.raises(config.ConfigInvalid, match="cannot be read"):
        config.found()


@pytest.mark.parametrize("wrong", ["lighter_a", "https://a:1=", "ftp://x=lighter_a", "=lighter_a"])
def test_a_wrong_entry_is_named_by_its_number_and_not_shown(wrong, monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_TOKENS", f"https://a:1=lighter_b,{wrong}")
    with pytest.raises(config.ConfigInvalid, match="entry 2") as refused:
        config.address("https://a:1")
    assert "lighter_" not in str(refused.value)


def test_a_token_is_not_shown_where_its_address_is(folder):
    assert "lighter_secret" not in repr(config.found())


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


def listener(answer):
    """Somebody who listens where a node did, and what they heard."""
    server, heard = socket.create_server(("127.0.0.1", 0)), []

    def serve():
        connection, _ = server.accept()
        with connection:
            while data := connection.recv(4_096):
                heard.append(data.decode())
                connection.sendall(answer(heard[-1]).encode())

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    return f"http://127.0.0.1:{server.getsockname()[1]}", heard, thread


def reply(body):
    return f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n{body}"


def nonce_of(request):
    return re.search(r"nonce=([0-9a-f]{64}) ", request)[1]


def test_the_proof_is_what_the_node_makes_of_it():
    """`identity.rs` has the same numbers."""
    proof = proof_of("lighter_secret", "http://127.0.0.1:8701", "ab" * 32)
    assert proof == "7476013021bcd7720f461eb14bb80a01d4cf20181cd5aaf6c41d81a38a1cf4d3"


@pytest.mark.parametrize("body", ["{}", "[]", "no JSON", *(json.dumps({"proof": proof}) for proof in ("0" * 64, 7, "é"))])
def test_whoever_cannot_prove_to_be_the_node_gets_no_token(folder, body):
    """A node was killed, and another user listened at its address: they were sent the admin token."""
    url, heard, thread = listener(lambda _: reply(body))
    (folder / "node.json").write_text(json.dumps({"api": url, "pid": 7}))
    (found,) = config.found()
    with pytest.raises(NodeUnproven, match="L1109"):
        Api(found.url, found.token, proves=found.proves).request("GET", "/v1/node")
    thread.join(5)
    assert len(heard) == 1 and heard[0].startswith("GET /v1/identity?nonce=") and "lighter_secret" not in heard[0]


def test_the_node_itself_gets_it_on_the_connection_that_it_proved():
    def answer(request):
        is_question = request.startswith("GET /v1/identity")
        return reply(json.dumps({"proof": proof_of("lighter_secret", url, nonce_of(request))}) if is_question else "{}")

    url, heard, _ = listener(answer)
    api = Api(url, "lighter_secret", proves=True)
    assert api.request("GET", "/v1/node").status == 200 and api.request("GET", "/v1/node").status == 200
    assert ["Bearer lighter_secret" in request for request in heard] == [False, True, True]


def test_an_answer_for_another_address_proves_nothing(folder):
    """A listener elsewhere has the node answer for it."""

    def answer(request):
        return reply(json.dumps({"proof": proof_of("lighter_secret", "http://127.0.0.1:8701", nonce_of(request))}))

    url, heard, _ = listener(answer)
    with pytest.raises(NodeUnproven):
        Api(url, "lighter_secret", proves=True).request("GET", "/v1/node")
    assert len(heard) == 1
