"""What the values within a tag are. Each of these gives back what it was given, or raises ValueError."""

from __future__ import annotations

import re
from typing import Any

import numpy as np


def list_of(value: Any, count: int | None = None) -> list[Any]:
    if type(value) is not list or (count is not None and len(value) != count):
        raise ValueError(f"it holds no list of {count} values" if count is not None else "it holds no list")
    return value


def text_of(value: Any) -> str:
    if type(value) is not str:
        raise ValueError("it holds no text")
    return value


def integers_of(value: Any, count: int) -> list[int]:
    if any(type(item) is not int for item in list_of(value, count)):
        raise ValueError("it holds no integers")
    return value  # type: ignore[no-any-return]


def array_of(value: Any) -> np.ndarray[Any, Any]:
    if type(value) is not np.ndarray:
        raise ValueError("it holds no array")
    return value


def match_of(pattern: re.Pattern[str], value: Any) -> re.Match[str]:
    found = pattern.fullmatch(text_of(value))
    if found is None:
        raise ValueError("it is written in another way")
    return found
