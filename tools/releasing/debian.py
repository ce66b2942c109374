"""A package of Debian, made with plain tools: the files of packaging/debian, and the program's.

`apt remove` stops the node and leaves configuration and data; `apt purge` takes the configuration too. The data stays:
it is somebody's, and its folder is named at the end.
"""

import hashlib

from . import tree
from .archives import Entry, ar, gz, program, tar_gz

SCRIPTS = ("postinst", "prerm", "postrm")


def name(version, revision, one):
    return f"lighterage_{version}-{revision}_{one.debian_arch}.deb"


def package(root, shared, one, version, time):
    folder = root / "packaging/debian"
    files = {f"usr/{path}": entry for path, entry in shared.items() if not path.endswith("/LICENSE")}
    files["usr/bin/lighter"] = program(one.bytes)
    files["usr/lib/systemd/system/lighter.service"] = tree.unit(root, "/usr")
    files["etc/lighter/node.toml"] = Entry((root / "packaging/node.toml").read_bytes())
    files["usr/share/doc/lighterage/copyright"] = Entry((folder / "copyright").read_bytes())
    files["usr/share/doc/lighterage/changelog.gz"] = Entry(gz((root / "CHANGELOG.md").read_bytes()))
    kilobytes = sum((len(entry.bytes) + 1023) // 1024 for entry in files.values())
    glibc = ".".join(map(str, one.glibc()))
    said = (folder / "control").read_text()
    for word, value in {"VERSION": version, "ARCH": one.debian_arch, "GLIBC": glibc, "KILOBYTES": str(kilobytes)}.items():
        said = said.replace(f"@{word}@", value)
    sums = "".join(f"{hashlib.md5(entry.bytes).hexdigest()}  {path}\n" for path, entry in sorted(files.items()) if path.startswith("usr/"))
    control = {"control": Entry(said.encode()), "conffiles": Entry(b"/etc/lighter/node.toml\n"), "md5sums": Entry(sums.encode())}
    for script in SCRIPTS:
        control[script] = program((folder / script).read_bytes())
    parts = [("debian-binary", b"2.0\n"), ("control.tar.gz", tar_gz(control, time, "./")), ("data.tar.gz", tar_gz(files, time, "./"))]
    return ar(parts, time)
