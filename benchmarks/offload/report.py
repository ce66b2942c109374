"""A text about the sweep, kept true: its tables and pictures are made anew from what was measured.

    <!-- table: NAME -->
    …replaced…
    <!-- end -->

Pictures go into the folder beside the text that is called as it is: those that the text shows and no others.
"""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import plots
from metrics import STAGES, Estimate, Point, Row, codecs_of, rates_of

_PART = re.compile(r"(<!-- table: ([a-z-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Unknown(ValueError):
    """The text asks for a table that there is not."""


def write(found: list[Row], text: Path) -> None:
    """Makes the text's tables and pictures anew.

    Raises Unknown, and then has changed nothing.
    """

    def replaced(match: re.Match[str]) -> str:
        if match[2] not in TABLES:
            raise Unknown(f"{text}: {match[2]!r} is none of {', '.join(TABLES)}")
        return f"{match[1]}\n{TABLES[match[2]](found)}\n\n{match[3]}"

    before = text.read_text()
    after = _PART.sub(replaced, before)
    folder = text.with_suffix("")
    shown = set(re.findall(rf"\({re.escape(folder.name)}/([^)]+\.png)\)", before))
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as drawn:
        for picture in plots.draw(found, Path(drawn)):
            if picture.name in shown:
                shutil.copy(picture, folder / picture.name)
    text.write_text(after)


def _border(found: list[Row]) -> str:
    """Multiplication at the highest rate: here, and each codec."""
    codecs, rate = codecs_of(found), max(rates_of(found))
    rows = []
    for row in found:
        if row.operation == "multiplication":
            points = [row.points.get(codec, {}).get(rate) for codec in codecs]
            rows.append([str(row.size), _seconds(row.local), *(_sooner(point) for point in points)])
    return _table(["n", "here", *codecs], rows)


def _sooner(point: Point | None) -> str:
    if point is None:
        return ""
    text = _seconds(point.seconds)
    return f"**{text}**" if point.pays and point.is_clear else text


def _cumulative(found: list[Row]) -> str:
    codecs = codecs_of(found)
    most = max(len(rates_of([row])) for row in found)
    rows = [
        [row.operation, str(row.size), *(_seconds(row.cumulative[codec]) if codec in row.points else "" for codec in codecs)]
        for row in found
        if len(rates_of([row])) == most
    ]
    return _table(["operation", "n", *codecs], rows)


def _stages(found: list[Row]) -> str:
    """Of each operation the largest size that was measured at every rate, at the lowest and the highest."""
    rates = rates_of(found)
    largest = {row.operation: row for row in found if rates_of([row]) == rates}
    rows = []
    for row in largest.values():
        for codec, by_rate in row.points.items():
            for rate in (rates[0], rates[-1]):
                stages = [_seconds(stage) for stage in by_rate[rate].stages.values()]
                rows.append([f"{row.operation}, {row.size}", codec, str(rate), *stages])
    return _table(["operation, n", "codec", "Mbit/s", *STAGES], rows)


def _table(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _seconds(estimate: Estimate) -> str:
    return estimate.text(".2f" if estimate.mean >= 0.095 else ".3f")


TABLES: dict[str, Callable[[list[Row]], str]] = {
    "border": _border,
    "stages": _stages,
    "cumulative": _cumulative,
}
