"""Which nodes there are, and with which token: the same rules as the command line's, for several nodes.

    address   connect() ▸ LIGHTERAGE_NODES (several) ▸ LIGHTER_NODE ▸ api in DATA/node.json
    token     token= ▸ LIGHTERAGE_TOKENS ▸ LIGHTERAGE_TOKENS_FILE ▸ LIGHTER_TOKEN ▸ DATA/token (for the node that proves it)
    DATA      LIGHTER_DATA ▸ $XDG_DATA_HOME/lighter ▸ ~/.local/share/lighter

`LIGHTERAGE_TOKENS` and the file have tokens by address. `LIGHTER_TOKEN` names no node, so it is sent to one alone: a
second node would learn the first one's token. `LIGHTERAGE_SHARE_TOKEN=1` says that all of them may have it. A token of a
fleet (`lighter_fleet_…`) is for all of its nodes, and with it one node is enough: that one tells of the others.

A token is never sent unencrypted beyond this machine, unless `LIGHTERAGE_PLAIN_TEXT=1` (or `plain_text=True`) says that
the network is trusted.
"""

from __future__ import annotations

import hashlib
import ipaddress
import json
import os
import re
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from ..errors import LighterageError

#: Bytes of a token file; a larger one is not a token.
TOKEN_BYTES_MAX: Final = 4_096
#: Bytes of a file with the tokens of several nodes; a larger one is refused.
TOKENS_BYTES_MAX: Final = 1 << 20
#: The bits of a file's mode by which others than its owner may read or write it.
_OTHERS: Final = 0o077
#: What a token begins with that counts at every node of a fleet.
FLEET_PREFIX: Final = "lighter_fleet_"


class ConfigInvalid(LighterageError, ValueError):
    """A setting is not what it should be."""

    code = "L9003"


@dataclass(frozen=True)
class Address:
    """A node, and how to talk to it."""

    url: str
    #: Never shown: an address may be printed, and stands in tracebacks.
    token: str | None = field(repr=False)
    ca_file: str | None = None
    #: Whether the node must prove to know the token before it is sent: one of a data folder, or of a fleet whose other
    #: nodes have told of this one.
    proves: bool = False
    #: Whether the token may travel unencrypted beyond this machine.
    plain_text: bool = False

    @property
    def is_of_fleet(self) -> bool:
        """Whether the token counts at the other nodes of a fleet too."""
        return self.token is not None and self.token.startswith(FLEET_PREFIX)


#: Which node each token of `LIGHTER_TOKEN` has been meant for, by its hash.
_meant: dict[str, str] = {}


def found() -> list[Address]:
    """The nodes that environment and data folder name.

    Raises ConfigInvalid where one is no address, or one token would go to several.
    """
    text = os.environ.get("LIGHTERAGE_NODES") or os.environ.get("LIGHTER_NODE") or ""
    urls = [url for url in re.split(r"[,\s]+", text) if url]
    if not urls:
        known = _known_node(_data_folder())
        urls = [known] if known else []
    tokens = _tokens()
    nameless = [url for url in dict.fromkeys(map(_url, urls)) if url not in tokens]
    if _own_token() and len(nameless) > 1 and not _is_shared(_own_token()):
        raise ConfigInvalid(_one_token(nameless[0], nameless[1]))
    return [address(url) for url in urls]


def address(url: str, token: str | None = None, ca_file: str | None = None, plain_text: bool | None = None) -> Address:
    """The node at this address, with the token that belongs to it.

    Raises ConfigInvalid where the address is none, or a token would travel unencrypted or to a second node.
    """
    url = _url(url)
    if plain_text is None:
        plain_text = os.environ.get("LIGHTERAGE_PLAIN_TEXT") == "1"
    folder = _data_folder()
    token = token or _tokens().get(url) or _nameless_token(url)
    proves = token is None and _known_node(folder) == url
    if proves:
        token = _read(folder / "token", TOKEN_BYTES_MAX).strip() or None
    if token and not (token.isascii() and token.isprintable()):
        raise ConfigInvalid("a token is printable ASCII; this one is not")
    if token and not plain_text and _is_read_along(url):
        raise ConfigInvalid(
            f"the token would travel unencrypted to {url}: use https, an SSH tunnel to 127.0.0.1, or plain_text=True on a "
            "network you trust"
        )
    return Address(url, token, ca_file or os.environ.get("LIGHTERAGE_CA_CERT") or None, proves, plain_text)


def neighbour(known: Address, url: str) -> Address | None:
    """A node that another one with the same token of a fleet has told of; none where the token may not travel there.

    Raises ConfigInvalid where that is no address.
    """
    url = _url(url)
    if not known.is_of_fleet or (_is_read_along(url) and not known.plain_text):
        return None
    return Address(url, known.token, known.ca_file, True, known.plain_text)


def may_discover() -> bool:
    """Whether nodes are asked for others: unless `LIGHTERAGE_DISCOVER=0` says no."""
    return os.environ.get("LIGHTERAGE_DISCOVER") != "0"


def _is_read_along(url: str) -> bool:
    """Whether somebody in the network could read what goes there."""
    parts = urlsplit(url)
    return parts.scheme == "http" and not _is_this_machine(parts.hostname or "")


def _url(text: str) -> str:
    """An address as it is compared: with its scheme, in small letters."""
    url = (text if "//" in text else f"http://{text}").rstrip("/")
    try:
        parts = urlsplit(url)
        good = parts.scheme in ("http", "https") and bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        good = False
    if not good or parts.path or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigInvalid(
            f"{text!r} is not the address of a node: write http://127.0.0.1:8701 or https://node.example.org:8701"
        )
    return f"{parts.scheme}://{parts.netloc.lower()}"


def _own_token() -> str:
    return os.environ.get("LIGHTER_TOKEN", "").strip()


def _is_shared(token: str) -> bool:
    return os.environ.get("LIGHTERAGE_SHARE_TOKEN") == "1" or token.startswith(FLEET_PREFIX)


def _nameless_token(url: str) -> str | None:
    """The token that says no node, if it was not meant for another one before."""
    token = _own_token()
    if not token or _is_shared(token):
        return token or None
    first = _meant.setdefault(hashlib.sha256(token.encode(errors="replace")).hexdigest(), url)
    if first != url:
        raise ConfigInvalid(_one_token(first, url))
    return token


def _one_token(first: str, second: str) -> str:
    return (
        f"LIGHTER_TOKEN is one token, and it would go to {first} and to {second}, either of which could use it on the other: "
        "name the token of each, LIGHTERAGE_TOKENS=ADDRESS=TOKEN,… or connect(url, token=…), or say LIGHTERAGE_SHARE_TOKEN=1"
    )


def _tokens() -> dict[str, str]:
    """Tokens by address, from the environment before the file."""
    found: dict[str, str] = {}
    path = os.environ.get("LIGHTERAGE_TOKENS_FILE")
    if path:
        found.update(_entries(_private(Path(path)), f"the file {path}"))
    found.update(_entries(os.environ.get("LIGHTERAGE_TOKENS", ""), "LIGHTERAGE_TOKENS"))
    return found


def _entries(text: str, place: str) -> Iterator[tuple[str, str]]:
    """What stands as `ADDRESS=TOKEN`, between commas or white space; a line of a file may be a comment, with `#`."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    for number, entry in enumerate(filter(None, re.split(r"[,\s]+", "\n".join(lines))), 1):
        # Without its words: half of it is a secret.
        url, equals, token = entry.partition("=")
        if not equals or not token:
            raise ConfigInvalid(f"{place}: entry {number} is not written ADDRESS=TOKEN")
        try:
            yield _url(url), token
        except ConfigInvalid:
            raise ConfigInvalid(f"{place}: entry {number} does not begin with the address of a node") from None


def _private(path: Path) -> str:
    """The text of a file that its owner alone may read, and the owner is whoever runs this."""
    try:
        with open(path, encoding="utf-8") as file:
            about = os.fstat(file.fileno())
            if not stat.S_ISREG(about.st_mode) or about.st_size > TOKENS_BYTES_MAX:
                raise ConfigInvalid(f"{path} is not a file of tokens")
            if hasattr(os, "geteuid") and (about.st_mode & _OTHERS or about.st_uid not in (os.geteuid(), 0)):
                raise ConfigInvalid(f"{path} holds tokens, and others may read or change it: chmod 600 {path}, as its owner")
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigInvalid(f"the tokens in {path} cannot be read: {error}") from None


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
