"""Our node with the six workloads in one class: those of `examples/`, and in Python for the class `process`."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from workloads import ALL, RESULTS, Sink, Source

from shared.mqtt import Subscriber
from shared.namespaces import Unable
from shared.node import Node

ROOT: Final = Path(__file__).parents[2]
FUNCTIONS: Final = Path(__file__).parent / "functions"
CLASSES: Final = ("wasm", "process", "microvm")
NAMES: Final = tuple(one.name for one in ALL)
SECRETS: Final = ("SIREN_URL", "SLACK_URL")
#: Parts of the manifests that no workload of the paper needs, and that app.py does not have.
LEFT_OUT: Final = ("function.record", "function.report", "sink.daily", "queue.record", "queue.report", "bucket.health-seen")


class Ours:
    """A node that is up, and both ends of its workloads."""

    def __init__(self, node: Node, source: Source, projects: dict[str, Path]) -> None:
        self.node, self.source, self.projects = node, source, projects


@contextlib.contextmanager
def up(lighter: Path, folder: Path, class_: str, names: Sequence[str] = NAMES) -> Iterator[Ours]:
    """A node with these workloads deployed. Raises Unable where it does not take the class."""
    node = Node(lighter, folder / "data", ("--mqtt", "127.0.0.1:0", "--allow-weaker-jail"))
    with contextlib.ExitStack() as open_, node.up():
        sink = Sink()
        open_.callback(sink.webhook.close)
        for secret in SECRETS:
            node.command("secret", "set", secret, given=f"http://127.0.0.1:{sink.webhook.address[1]}/")
        projects = {name: project(folder, name, class_) for name in names}
        for made in projects.values():
            try:
                node.deploy(made)
            except RuntimeError as refused:
                raise Unable(f"class {class_} takes no {made.name}: {refused}") from refused
        open_.callback(Subscriber(node.mqtt, "sink", RESULTS, sink.hear).close)
        source = Source(node.mqtt, sink)
        open_.callback(source.close)
        yield Ours(node, source, projects)


def project(folder: Path, name: str, class_: str) -> Path:
    """A copy of an example whose functions are of this class."""
    made = folder / class_ / name
    shutil.copytree(ROOT / "examples" / name, made)
    manifest = made / "lighter.toml"
    text = re.sub(r"^build = .*\n", "", manifest.read_text(), flags=re.M)
    if class_ == "process":
        for file in ("work.py", "app.py"):
            shutil.copy(FUNCTIONS / file, made / file)
        for section in LEFT_OUT:
            text = re.sub(rf"^\[{re.escape(section)}\]\n(?:[^\[\n].*\n)*", "", text, flags=re.M)
        text = re.sub(r"^units\.reuse_calls = .*\n", "", text, flags=re.M)
        text = re.sub(
            r"^\[function\.(\w+)\]\nimage = .*$",
            r'[function.\1]\nisolation = "process"\nimage = "."\nentry = "app:\1"',
            text,
            flags=re.M,
        )
    elif class_ != "wasm":
        text = re.sub(r"^(\[function\.\w+\])$", rf'\1\nisolation = "{class_}"', text, flags=re.M)
    manifest.write_text(text)
    return made
