"""A node for the tests that need one, and a client that knows no other."""

import os

import pytest

import lighterage
from lighterage.places import config, runtime
from proxy import Proxy
from standin import StandIn


@pytest.fixture(autouse=True)
def no_nodes(monkeypatch, tmp_path):
    """Every test begins with a client that knows nothing and nobody."""
    for name in [name for name in os.environ if name.startswith("LIGHTERAGE_") or name in ("LIGHTER_NODE", "LIGHTER_TOKEN")]:
        monkeypatch.delenv(name)
    monkeypatch.setattr(config, "_meant", {})
    monkeypatch.setenv("LIGHTER_DATA", str(tmp_path / "no-node"))
    runtime.current.disconnect()
    runtime.current = runtime.Runtime()
    yield
    runtime.current.disconnect()


@pytest.fixture
def node():
    made = StandIn()
    yield made
    made.close()


@pytest.fixture
def client(node):
    """The client's side of the node."""
    return lighterage.connect(node.url, node.token)


@pytest.fixture
def network(node):
    made = Proxy(node.port)
    yield made
    made.close()
