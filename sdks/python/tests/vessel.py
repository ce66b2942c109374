"""A module of a user as the tests of hostile peers want one: it imports libraries, and has classes that run code."""

import json
import os
from dataclasses import dataclass
from json import JSONDecodeError

import numpy as np

import vessel_library
from vessel_library import Resource

__all__ = ["JSONDecodeError", "Resource", "json", "np", "os", "vessel_library"]

#: What the classes of this module and its library were made to do.
ran = vessel_library.ran


@dataclass
class Cargo:
    weight: int

    @dataclass
    class Label:
        text: str


@dataclass
class Closing:
    path: str

    def __del__(self):
        ran.append(("del", self.path))


@dataclass
class Inherits(Resource):
    more: int = 0


@dataclass
class Watched:
    value: int

    def __setattr__(self, name, value):
        ran.append(("setattr", name))
        object.__setattr__(self, name, value)


def _set(self, value):
    ran.append(("property", value))


@dataclass
class Computed:
    value: int


Computed.value = property(lambda self: 1, _set)


@dataclass(slots=True)
class Slotted:
    value: int


class TooHeavy(ValueError):
    def __init__(self, weight):
        ran.append(("init", weight))
        super().__init__(f"{weight} is too heavy")
        self.weight = weight


class MakesItself(ValueError):
    def __new__(cls, *args):
        ran.append(("new", args))
        return super().__new__(cls, *args)


class EndsItself(ValueError):
    def __del__(self):
        ran.append(("del", self.args))


class Guarded(ValueError):
    @property
    def args(self):
        return ()

    @args.setter
    def args(self, value):
        ran.append(("args", value))

    def add_note(self, note):
        ran.append(("note", note))

    def __setattr__(self, name, value):
        ran.append(("setattr", name))
