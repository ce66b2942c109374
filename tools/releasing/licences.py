"""What is inside, and under which licences: the list of tools/sbom, and the texts that its crates bring along."""

import importlib.machinery
import importlib.util
import json
from pathlib import Path

#: What files with licences are called, without regard to case.
NAMES = ("license", "licence", "copying", "notice", "unlicense")
#: A longer file is something else.
BYTES_MAX = 200_000


def tool(root):
    loader = importlib.machinery.SourceFileLoader("sbom", str(root / "tools/sbom"))
    module = importlib.util.module_from_spec(importlib.util.spec_from_loader("sbom", loader))
    loader.exec_module(module)
    return module


def sbom(root):
    return (json.dumps(tool(root).document(), indent=1) + "\n").encode()


def texts(root):
    """Each text once, below the names of all that come with it. Only who brings none is listed by its SPDX expression."""
    listing, by_text, without = tool(root), {}, []
    for folder, begins, targets in listing.SHIPPED:
        for target in targets:
            packages, needs = listing.linked(folder, begins, target)
            for package in (packages[id] for id in needs):
                name = f"{package['name']} {package['version']} ({package['license']})"
                if package["source"] is None and not listing.is_changed(package):
                    continue
                found = [file.read_text(errors="replace").strip() for file in files(Path(package["manifest_path"]).parent)]
                for text in found:
                    by_text.setdefault(text, set()).add(name)
                if not found:
                    without.append(name)
    rule = "\n" + "=" * 80 + "\n"
    head = "lighter contains code of others. Their licences, each below the names of what comes with it:\n"
    parts = [f"{chr(10).join(sorted(names))}\n\n{text}\n" for text, names in by_text.items()]
    parts.append("These name their licence, which is one of the texts above, and bring no text of it:\n" + "\n".join(sorted(set(without))) + "\n")
    return (head + rule + rule.join(sorted(parts[:-1]) + parts[-1:])).encode()


def files(folder):
    named = (file for file in folder.iterdir() if file.is_file() and file.name.lower().startswith(NAMES))
    return sorted(file for file in named if file.stat().st_size <= BYTES_MAX)
