"""Which nodes there are, and with which token: the same rules as the command line's.

    address   connect() ▸ LIGHTERAGE_NODES (several) ▸ LIGHTER_NODE ▸ api in DATA/node.json
    token     token= ▸ LIGHTER_TOKEN ▸ DATA/token, sent only to the node that wrote it
    DATA      LIGHTER_DATA ▸ $XDG_DATA_HOME/lighter ▸ ~/.local/share/lighter

A token is never sent unencrypted beyond this machine, unless `LIGHTERAGE_PLAIN_TEXT=1` (or `plain_text=True`) says that
the network is trusted.
"""

from __future__ import annotations

import ipaddress
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from .errors import LighterageError

#: Bytes of a token file; a larger one is not a token.
TOKEN_BYTES_MAX: Final = 4_096


class ConfigInvalid(LighterageError, ValueError):
    """A setting is not what it should be."""

    code = "L9003"


@dataclass(frozen=True)
class Address:
    """A node, and how to talk to it."""

    url: str
    token: str | None
    ca_file: str | None = None


def found() -> list[Address]:
    """The nodes that environment and data folder name."""
    text = os.environ.get("LIGHTERAGE_NODES") or os.environ.get("LIGHTER_NODE") or ""
    urls = [url for url in re.split(r"[,\s]+", text) if url]
    if not urls:
        known = _known_node(_data_folder())
        urls = [known] if known else []
    return [address(url) for url in urls]


def address(url: str, token: str | None = None, ca_file: str | None = None, plain_text: bool | None = None) -> Address:
    """The node at this address, with the token that belongs to it.

    Raises ConfigInvalid where the address is none, or a token would travel unencrypted.
    """
    url = (url if "//" in url else f"http://{url}").rstrip("/")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.path or parts.query or "@" in parts.netloc:
        raise ConfigInvalid(f"{url!r} is not the address of a node: write http://127.0.0.1:8701 or https://node.example.org:8701")
    if plain_text is None:
        plain_text = os.environ.get("LIGHTERAGE_PLAIN_TEXT") == "1"
    folder = _data_folder()
    token = token or os.environ.get("LIGHTER_TOKEN", "").strip() or None
    if token is None and _known_node(folder) == url:
        token = _read(folder / "token", TOKEN_BYTES_MAX).strip() or None
    if token and not (token.isascii() and token.isprintable()):
        raise ConfigInvalid("a token is printable ASCII; this one is not")
    if token and parts.scheme == "http" and not _is_this_machine(parts.hostname) and not plain_text:
        raise ConfigInvalid(
            f"the token would travel unencrypted to {url}: use https, an SSH tunnel to 127.0.0.1, or plain_text=True on a "
            "network you trust"
        )
    return Address(url, token, ca_file or os.environ.get("LIGHTERAGE_CA_CERT") or None)


def _data_folder() -> Path:
    given = os.environ.get("LIGHTER_DATA")
    if given:
        return Path(given)
    home = os.environ.get("XDG_DATA_HOME")
    return Path(home) / "lighter" if home else Path.home() / ".local/share/lighter"


def _known_node(folder: Path) -> str | None:
    try:
        url = json.loads(_read(folder / "node.json", 65_536))["api"]
    except (ValueError, KeyError, TypeError):
        return None
    return url.rstrip("/") if isinstance(url, str) else None


def _read(path: Path, bytes_max: int) -> str:
    try:
        return path.read_text() if path.stat().st_size <= bytes_max else ""
    except OSError:
        return ""


def _is_this_machine(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
