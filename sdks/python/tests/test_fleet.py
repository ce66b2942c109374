"""A device that knows one node of a fleet, with a token of the fleet: it finds the others, and goes on without that one."""

import os
import subprocess
import time

import pytest

import lighterage
import work
from lighterage.errors import NodeUnproven
from lighterage.places import config, fleet, runtime
from lighterage.places.wire import Api
from standin import StandIn
from test_node import PROGRAM, RealNode

TOKEN = "lighter_fleet_" + "7" * 64


def until(what, is_so):
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, f"{what} did not come"
        time.sleep(0.05)


def known():
    return {node.name for node in lighterage.nodes()}


def usable():
    """As each call asks for them."""
    return {node.name for node in runtime.current.usable(None, time.monotonic())}


@pytest.fixture
def town():
    """Nodes that stand in for those of a fleet. `tell` says of whom each of them tells from now on."""
    nodes = [StandIn(TOKEN) for _ in range(3)]

    def tell(*members):
        for node in nodes:
            node.places = [
                {"id": f"id{nodes.index(one)}", "api": one.url, "this_node": one is node, "name": "x", "functions": []}
                for one in members
            ]

    tell(*nodes)
    yield nodes, tell
    for node in nodes:
        node.close()


def test_one_node_is_enough(town):
    nodes, _ = town
    lighterage.connect(nodes[0].url, TOKEN)
    until("the other nodes", lambda: known() == {node.name for node in nodes})
    until("what they are", lambda: all(node.known for node in lighterage.nodes()))
    assert [node.is_found for node in lighterage.nodes()] == [False, True, True]


def test_who_tells_is_replaced_and_who_is_gone_is_forgotten(town, monkeypatch):
    monkeypatch.setattr(fleet, "EVERY_SECONDS", 0.0)
    nodes, tell = town
    tell(nodes[0], nodes[1])
    lighterage.connect(nodes[0].url, TOKEN)
    until("the second", lambda: known() == {nodes[0].name, nodes[1].name})
    until("its answer", lambda: all(node.known for node in lighterage.nodes()))
    # The one that was named is gone. The other one tells of a third.
    tell(nodes[1], nodes[2])
    nodes[0].refuse_all = True
    for node in lighterage.nodes():
        if node.name == nodes[0].name:
            runtime.current.failed(node)
    until("the third", lambda: usable() == {nodes[1].name, nodes[2].name})
    # A found one that nobody tells of any more and that is silent.
    tell(nodes[1])
    nodes[2].refuse_all = True
    for node in lighterage.nodes():
        if node.name == nodes[2].name:
            node._away_until = time.monotonic() + 600
    until("an end of the third", lambda: usable() == {nodes[1].name} and nodes[2].name not in known())
    assert nodes[0].name in known(), "what was named stays"


def place(member, node, is_own=False):
    return {"id": member, "api": node.url, "this_node": is_own, "name": "x", "functions": []}


def test_a_named_node_that_moved_is_found_until_it_is_back(town, monkeypatch):
    monkeypatch.setattr(fleet, "EVERY_SECONDS", 0.0)
    nodes, tell = town
    tell(nodes[0], nodes[1])
    lighterage.connect(nodes[0].url, TOKEN)
    moved = lighterage.connect(nodes[1].url, TOKEN)
    until("who they are", lambda: usable() and all(node.member for node in lighterage.nodes()))
    # It has another address now: there the third one stands in for it.
    nodes[0].places = [place("id0", nodes[0], True), place("id1", nodes[2])]
    nodes[2].places = [place("id0", nodes[0]), place("id1", nodes[2], True)]
    nodes[1].refuse_all = True
    runtime.current.failed(moved)
    until("its other address", lambda: usable() == {nodes[0].name, nodes[2].name})
    assert nodes[1].name in known(), "what was named stays"
    nodes[1].refuse_all = False
    until("an end of its twin", lambda: usable() == {nodes[0].name, nodes[1].name} == known())


def test_a_named_node_is_not_found_again_where_others_reach_it(town):
    nodes, tell = town
    tell(nodes[0], nodes[1])
    lighterage.connect(nodes[0].url, TOKEN)
    until("the other one", lambda: nodes[1].name in known())
    lighterage.connect(f"http://localhost:{nodes[1].port}", TOKEN)
    both = {nodes[0].name, f"localhost:{nodes[1].port}"}

    def is_each_once():
        runtime.current._fleet.ask()
        return known() == both

    until("each of them once", is_each_once)
    assert all(is_each_once() for _ in range(3))


def test_no_more_nodes_than_the_bound_and_no_nonsense(town, monkeypatch):
    monkeypatch.setattr(fleet, "FOUND_MAX", 1)
    nodes, _ = town
    for wrong in ("ftp://a:1", "http://a:1/x", "", "http://10.1.2.3:8701"):
        nodes[0].places.insert(0, {"id": f"w{len(nodes[0].places)}", "api": wrong, "this_node": False})
    lighterage.connect(nodes[0].url, TOKEN)
    until("one other", lambda: len(known()) == 2)
    runtime.current._fleet.ask()
    assert known() == {nodes[0].name, nodes[1].name}
    nodes[0].places = [{"id": "a b\r\nx: y", "api": nodes[2].url, "this_node": False}]
    with pytest.raises(lighterage.LighterageError):
        lighterage.nodes()[0].neighbours()


def test_other_tokens_go_nowhere(town, monkeypatch):
    nodes, _ = town
    for node in nodes:
        node.token = "lighter_own"
    lighterage.connect(nodes[0].url, "lighter_own")
    assert runtime.current._fleet is None
    lighterage.disconnect()
    for node in nodes:
        node.token = TOKEN
    monkeypatch.setenv("LIGHTERAGE_DISCOVER", "0")
    lighterage.connect(nodes[0].url, TOKEN)
    runtime.current._fleet.ask()
    assert known() == {nodes[0].name}


def test_a_token_of_a_fleet_is_for_several_nodes_and_never_in_the_clear(monkeypatch):
    monkeypatch.setenv("LIGHTERAGE_NODES", "https://a:1,https://b:2")
    monkeypatch.setenv("LIGHTER_TOKEN", TOKEN)
    assert [one.token for one in config.found()] == [TOKEN, TOKEN]
    secret, here = config.address("https://a:1"), config.address("http://127.0.0.1:1")
    assert config.neighbour(secret, "https://c:3") == config.Address("https://c:3", TOKEN, proves=True)
    assert config.neighbour(secret, "http://10.1.2.3:4") is None and config.neighbour(here, "http://10.1.2.3:4") is None
    plain = config.address("http://10.1.2.3:4", TOKEN, plain_text=True)
    assert config.neighbour(plain, "http://10.1.2.4:4").token == TOKEN
    assert config.neighbour(config.address("https://a:1", "lighter_x"), "https://b:2") is None


def test_who_cannot_prove_to_be_of_the_fleet_gets_no_token(town):
    (node, *_), _ = town
    node.proves_with = "lighter_fleet_other"
    api = Api(node.url, TOKEN, proves=True)
    with pytest.raises(NodeUnproven, match="no node of the fleet"):
        api.request("GET", "/v1/node")
    node.proves_with = None
    assert api.request("GET", "/v1/node").status == 200


def lighter(folder, *words):
    command = [PROGRAM, "--data-folder", folder, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=120).stdout.strip()


@pytest.mark.skipif(not PROGRAM.exists(), reason="node: the program is not built")
def test_a_device_that_knows_one_node_goes_on_when_that_one_is_killed(tmp_path):
    nodes = {}

    def start(name):
        folder = tmp_path / name
        folder.mkdir()
        nodes[name] = RealNode(folder, "--node-name", name, "--fleet-listen", "127.0.0.1:0")
        return nodes[name]

    try:
        anchor, first, second = start("server-1"), start("pi-7"), start("pi-8")
        lighter(anchor.folder, "fleet", "new", "campus")
        invitation = lighter(anchor.folder, "fleet", "invite", "--times", "3")
        for node in (first, second):
            lighter(node.folder, "fleet", "join", invitation)
        token = lighter(anchor.folder, "fleet", "token", "create", "phone", "--scope", "deploy")

        def is_let_in():
            return Api(first.url, token).request("GET", "/v1/fleet/places").status == 200

        until("word of the token", is_let_in)
        lighterage.connect(first.url, token)

        def usable():
            # As each call does.
            return {node.url for node in runtime.current.usable(None, time.monotonic())}

        until("the other nodes", lambda: usable() == {anchor.url, first.url, second.url})
        there = work.where.with_options(local=False)
        assert there.remote() != os.getpid()
        first.process.kill()
        first.process.wait()
        for _ in range(20):
            assert there.remote() != os.getpid()
        third = start("pi-9")
        lighter(third.folder, "fleet", "join", invitation)
        until("the new node", lambda: third.url in usable())
        on_third = next(node for node in lighterage.nodes() if node.url == third.url)
        assert work.where.remote(on=on_third) != os.getpid()
        lighter(anchor.folder, "fleet", "token", "rm", "phone")
        until("the token's end", lambda: Api(second.url, token).request("GET", "/v1/fleet/places").status == 401)
    finally:
        for node in nodes.values():
            node.stop()
