"""Archives whose bytes depend on nothing but their contents: sorted names, one time, root as owner, no extra fields."""

import gzip
import io
import tarfile
from dataclasses import dataclass


@dataclass(frozen=True)
class Entry:
    """A file, or a folder (without bytes) or a link (with its target)."""

    bytes: bytes = b""
    mode: int = 0o644
    link: str = ""
    owner: int = 0

    @property
    def is_folder(self):
        return not self.link and self.mode & 0o040000 != 0


def folder(mode=0o755, owner=0):
    return Entry(mode=0o040000 | mode, owner=owner)


def program(content):
    return Entry(content, 0o755)


def with_folders(entries):
    """The entries, and every folder above one."""
    whole = dict(entries)
    for path in entries:
        parts = path.split("/")
        for length in range(1, len(parts)):
            whole.setdefault("/".join(parts[:length]), folder())
    return whole


def tar(entries, time, prefix=""):
    """`entries` by path, without a slash at the beginning."""
    into = io.BytesIO()
    with tarfile.open(fileobj=into, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path, entry in sorted(with_folders(entries).items()):
            item = tarfile.TarInfo(prefix + path)
            item.mtime, item.mode, item.uid, item.gid = time, entry.mode & 0o7777, entry.owner, entry.owner
            item.uname = item.gname = "" if entry.owner else "root"
            if entry.link:
                item.type, item.linkname = tarfile.SYMTYPE, entry.link
            elif entry.is_folder:
                item.type = tarfile.DIRTYPE
            else:
                item.size = len(entry.bytes)
            archive.addfile(item, io.BytesIO(entry.bytes))
    return into.getvalue()


def gz(content):
    return gzip.compress(content, compresslevel=9 if len(content) < 1 << 20 else 6, mtime=0)


def tar_gz(entries, time, prefix=""):
    return gz(tar(entries, time, prefix))


def ar(members, time):
    """The outer archive of a package of Debian."""
    whole = b"!<arch>\n"
    for name, content in members:
        whole += f"{name:<16}{time:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode() + content
        whole += b"\n" if len(content) % 2 else b""
    return whole
