"""What goes along with the program: unit file, manual pages, completions, monitoring, licences.

    share/man/man1  share/bash-completion …  share/lighterage/{*-units.conf,monitoring}  share/doc/lighterage
"""

import re
import tempfile
from pathlib import Path

from .archives import Entry, gz, program

#: Where each shell looks, in packages of Debian and below /usr/local.
COMPLETIONS = {
    "bash": "share/bash-completion/completions/lighter",
    "zsh": "share/zsh/vendor-completions/_lighter",
    "fish": "share/fish/vendor_completions.d/lighter.fish",
}


def version(root):
    return re.search(r'^version = "([^"]*)"$', (root / "Cargo.toml").read_text(), re.M)[1]


def shared(root, helper, made):
    """By path below the prefix: all but the program and its unit file. `helper` is a program that runs here."""
    entries = {}
    with tempfile.TemporaryDirectory() as folder:
        helper.run("man-pages", folder)
        for page in Path(folder).iterdir():
            entries[f"share/man/man1/{page.name}.gz"] = Entry(gz(page.read_bytes()))
    for shell, path in COMPLETIONS.items():
        entries[path] = Entry(helper.run("completions", shell))
    packaging = root / "packaging"
    for name in ("process-units.conf", "microvm-units.conf"):
        entries[f"share/lighterage/{name}"] = Entry((packaging / f"lighter-{name}").read_bytes())
    for file in sorted((packaging / "monitoring").iterdir()):
        entries[f"share/lighterage/monitoring/{file.name}"] = Entry(file.read_bytes())
    entries["share/doc/lighterage/LICENSE"] = Entry((root / "LICENSE").read_bytes())
    entries["share/doc/lighterage/operating.md"] = Entry((root / "docs/operating.md").read_bytes())
    entries["share/doc/lighterage/THIRD-PARTY.txt.gz"] = Entry(gz(made["THIRD-PARTY.txt"]))
    entries["share/doc/lighterage/lighter.cdx.json.gz"] = Entry(gz(made["lighter.cdx.json"]))
    return entries


def unit(root, prefix):
    text = (root / "packaging/lighter.service").read_text()
    assert "/usr/local/bin/lighter" in text
    return Entry(text.replace("/usr/local/bin/lighter", f"{prefix}/bin/lighter").encode())


def of_tar(entries, one):
    """To be unpacked into /usr/local, which systemd, man and shells look into."""
    root = Path(__file__).resolve().parents[2]
    zsh = COMPLETIONS["zsh"]
    moved = {("share/zsh/site-functions/_lighter" if path == zsh else path): entry for path, entry in entries.items()}
    config = Entry((root / "packaging/node.toml").read_bytes())
    return {**moved, "bin/lighter": program(one.bytes), "lib/systemd/system/lighter.service": unit(root, "/usr/local"), "share/lighterage/node.toml": config}


def in_folder(name, entries):
    return {f"{name}/{path}": entry for path, entry in entries.items()}
