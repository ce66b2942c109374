"""Signatures in minisign's format, which `minisign -V` checks."""

import subprocess

from .program import Wrong


def sign(file, key, comment):
    """Ed25519 is deterministic, and so the comment has no time."""
    words = ["minisign", "-S", "-s", key, "-m", file, "-t", comment, "-c", "lighter"]
    try:
        subprocess.run(words, check=True, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    except FileNotFoundError as error:
        raise Wrong("minisign is not installed: apt-get install minisign") from error
