"""An image for containers in one file (OCI image layout), made without an engine for containers.

    libc6, libgcc-s1 of Debian ─▶ the libraries the program names, and theirs ─┐
    program, user, folders ────────────────────────────────────────────────────┴─▶ one layer ─▶ config ─▶ manifest ─▶ index

There is nothing else in it: no shell, no package manager.
"""

import hashlib
import io
import json
import re
import subprocess
import tarfile
import tempfile
from datetime import datetime, timezone
from pathlib import Path

from .archives import Entry, folder, gz, program, tar
from .program import Wrong

#: Packages of Debian that have the libraries of the program.
PACKAGES = ("libc6", "libgcc-s1")
#: Who the program runs as: `nobody` elsewhere has another number.
USER = 10001
PASSWD = f"root:x:0:0:root:/:/sbin/nologin\nlighter:x:{USER}:{USER}:lighter:/var/lib/lighter:/sbin/nologin\n"
#: A container's network is its own. Beyond loopback routes need a token unless they say otherwise.
COMMAND = ["up", "--data-folder", "/var/lib/lighter", "--http", "0.0.0.0:8700", "--insecure-listen"]


def archive(one, shared, version, time):
    entries = libraries(one)
    entries["usr/bin/lighter"] = program(one.bytes)
    entries["etc/passwd"] = Entry(PASSWD.encode())
    entries["etc/group"] = Entry(f"root:x:0:\nlighter:x:{USER}:\n".encode())
    entries["var/lib/lighter"] = folder(0o700, USER)
    entries["tmp"] = folder(0o1777)
    for path in ("LICENSE", "THIRD-PARTY.txt.gz"):
        entries[f"usr/share/doc/lighterage/{path}"] = shared[f"share/doc/lighterage/{path}"]
    plain = tar(entries, time)
    layer = gz(plain)
    created = datetime.fromtimestamp(time, timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    labels = {"org.opencontainers.image.title": "lighter", "org.opencontainers.image.version": version, "org.opencontainers.image.licenses": "Apache-2.0"}
    config = as_json(
        {
            "created": created,
            "architecture": one.image_arch,
            "os": "linux",
            "config": {
                "User": "lighter",
                "Env": ["PATH=/usr/bin", "LIGHTER_DATA=/var/lib/lighter"],
                "Entrypoint": ["/usr/bin/lighter"],
                "Cmd": COMMAND,
                "ExposedPorts": {"8700/tcp": {}},
                "Volumes": {"/var/lib/lighter": {}},
                "Labels": labels,
            },
            "rootfs": {"type": "layers", "diff_ids": [digest(plain)]},
            "history": [{"created": created, "created_by": "tools/release"}],
        }
    )
    kind = "application/vnd.oci.image"
    described = lambda content, of: {"mediaType": f"{kind}.{of}", "digest": digest(content), "size": len(content)}  # noqa: E731
    manifest = as_json(
        {
            "schemaVersion": 2,
            "mediaType": f"{kind}.manifest.v1+json",
            "config": described(config, "config.v1+json"),
            "layers": [described(layer, "layer.v1.tar+gzip")],
        }
    )
    named = {
        **described(manifest, "manifest.v1+json"),
        "platform": {"architecture": one.image_arch, "os": "linux"},
        "annotations": {"org.opencontainers.image.ref.name": f"lighterage:{version}", "io.containerd.image.name": f"docker.io/library/lighterage:{version}"},
    }
    index = as_json({"schemaVersion": 2, "mediaType": f"{kind}.index.v1+json", "manifests": [named]})
    blobs = {f"blobs/sha256/{digest(content)[7:]}": Entry(content) for content in (layer, config, manifest)}
    return tar({"oci-layout": Entry(b'{"imageLayoutVersion":"1.0.0"}'), "index.json": Entry(index), **blobs}, time)


def as_json(value):
    return json.dumps(value, separators=(",", ":"), sort_keys=True).encode()


def digest(content):
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def libraries(one):
    """The shared libraries that the program needs, at the places its loader looks, with the copyright of their packages."""
    with tempfile.TemporaryDirectory() as work:
        root = Path(work) / "root"
        for package in PACKAGES:
            fetch(f"{package}:{one.debian_arch}", Path(work))
        for file in sorted(Path(work).glob("*.deb")):
            subprocess.run(["dpkg-deb", "-x", file, root], check=True, capture_output=True)
        interpreter = re.search(r"interpreter: (/\S+?)\]", one.elf("--program-headers"))[1]
        entries = {}
        waiting, found = [interpreter.rsplit("/", 1)[1], *needed(one.file)], set()
        while waiting:
            wanted = waiting.pop()
            if wanted in found:
                continue
            found.add(wanted)
            file = find(root, wanted)
            path = interpreter[1:] if interpreter.endswith(f"/{wanted}") else f"lib/{one.arch}-linux-gnu/{wanted}"
            entries[path] = program(file.read_bytes())
            waiting += needed(file)
        for package in PACKAGES:
            entries[f"usr/share/doc/{package}/copyright"] = Entry(copyright_of(root, package))
    return entries


def fetch(package, into):
    done = subprocess.run(["apt-get", "download", "--quiet", package], cwd=into, capture_output=True, text=True)
    if done.returncode:
        advice = "for another processor: dpkg --add-architecture arm64 && apt-get update"
        raise Wrong(f"apt-get cannot download {package} ({advice}): {done.stderr.strip()}")


def copyright_of(root, package):
    """That of libgcc-s1 stands in the package of the compiler's base, to which its folder is a link."""
    file = root / "usr/share/doc" / package / "copyright"
    if file.exists():
        return file.read_bytes()
    return f"https://metadata.ftp-master.debian.org/changelogs/main/g/gcc-12/ has the copyright of {package}\n".encode()


def needed(file):
    said = subprocess.run(["readelf", "--wide", "--dynamic", file], check=True, capture_output=True, text=True).stdout
    return re.findall(r"\(NEEDED\).*\[(\S+)\]", said)


def find(root, name):
    files = sorted(file for file in root.rglob(name) if file.exists())
    if not files:
        raise Wrong(f"no package of {', '.join(PACKAGES)} has {name}")
    return files[0]


def unpack(image, into):
    """The root that a container of this image has; what tools/check-release runs."""
    with tarfile.open(image) as outer:
        read = lambda name: outer.extractfile(name).read()  # noqa: E731
        blob = lambda one: read("blobs/sha256/" + one["digest"].removeprefix("sha256:"))  # noqa: E731
        manifest = json.loads(blob(json.loads(read("index.json"))["manifests"][0]))
        for layer in manifest["layers"]:
            content = blob(layer)
            assert digest(content) == layer["digest"]
            with tarfile.open(fileobj=io.BytesIO(content)) as inner:
                inner.extractall(into, filter="fully_trusted")
        return json.loads(blob(manifest["config"]))["config"]
