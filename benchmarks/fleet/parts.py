"""The parts of the benchmark, in the order in which they run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import beside
import calling
import cuts
import idle
import joining
import mailing
import played
from bench import Bench


@dataclass(frozen=True)
class Part:
    """Some figures that are measured together."""

    does: str
    figures: tuple[str, ...]
    run: Callable[[Bench], None]


ALL: Final = {
    "join": Part("a new node becomes one of the fleet", ("join_s",), joining.join),
    "forward": Part(
        "calls that run at another node than where they enter",
        ("forward_added_p50_ms", "forward_vs_direct"),
        calling.forward,
    ),
    "rss": Part("memory of a node that belongs to a fleet", ("fleet_rss_mb",), idle.rss),
    "bytes": Part("what goes over the cables of an idle fleet", ("fleet_bytes_node_s",), idle.carried),
    "binary": Part("the program's size", ("binary_mb",), idle.binary),
    "simulation": Part(
        "choice and planner among 10,000 nodes, in virtual time",
        ("sim_nodes", "sim_regret_mean", "choice_us", "plan_ms_10000"),
        played.town,
    ),
    "deploy": Part("a component for 20 nodes, deployed once", ("deploy_20_nodes_s",), joining.deploy),
    "boot": Part("a node with 1,000 functions starts while nobody else is there", ("offline_boot_ms",), joining.boot),
    "mail": Part("events for a queue of another node", ("mail_events_s",), mailing.mail),
    "cuts": Part("the same while nodes, cables and the engine fail", ("mail_lost", "mail_doubled"), cuts.cuts),
    "catch-up": Part(
        "100,000 events that waited for a node, and calls of it meanwhile",
        ("catch_up_100k_s", "catch_up_live_p99_ratio"),
        mailing.catch_up,
    ),
    "wiped": Part("mail on its way while the engine's data is deleted", ("engine_wiped_lost",), mailing.wiped),
    "node-killed": Part("a function with two copies, of which one dies", ("node_killed_gap_ms",), calling.node_killed),
    "anchor-killed": Part(
        "calls between nodes whose anchor dies",
        ("anchor_killed_calls_failed",),
        calling.anchor_killed,
    ),
    "peers": Part("what others take for some of that", (), beside.peers),
}
