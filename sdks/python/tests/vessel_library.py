"""A library that a user's module imports: nothing of it is made because a peer says so."""

from dataclasses import dataclass

ran = []


@dataclass
class Resource:
    path: str

    def __del__(self):
        ran.append(("del", self.path))


class LibraryError(Exception):
    def __new__(cls, *args):
        ran.append(("new", args))
        return super().__new__(cls, *args)
