"""Class methods that the tests offload."""

import os

from lighterage import offload


class Unit:
    """A class whose methods are the class's, with the two decorators in either order."""

    factor = 2.0

    @offload
    @classmethod
    def above(cls, x, plus=0.0):
        return cls.__name__, x * cls.factor + plus, os.getpid()

    @classmethod
    @offload
    def below(cls, x, plus=0.0):
        return cls.__name__, x * cls.factor + plus, os.getpid()


class Larger(Unit):
    factor = 20.0


@offload
def give():
    return Unit
