"""The sweep's pictures: PNG files, and one page of HTML that holds them all. Bars and bands are 95 % confidence intervals."""

from __future__ import annotations

import base64
import html
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
from matplotlib.colors import ListedColormap

import work
from metrics import STAGES, Estimate, Point, Row, codecs_of, rates_of

_COLOURS = ("#4c72b0", "#dd8452", "#8c8c8c", "#55a868", "#c44e52", "#937860", "#da8bc3")
_CODECS = dict(zip(work.CODECS, _COLOURS, strict=False))
#: A heat map's squares: not measured, the client sooner, the node sooner.
_PLACES = ListedColormap(["#ffffff", "#dfe3ea", "#4c72b0"])


def completion(row: Row, path: Path) -> None:
    """Completion on the node by stages for each rate and codec, with the client's own time as a dotted line (figure 4)."""
    rates = rates_of([row])
    figure, axes = plt.subplots(figsize=(max(1.6 + 1.3 * len(rates), 5.0), 4.6), layout="constrained")
    width = 0.8 / len(row.points)
    for at, (codec, by_rate) in enumerate(row.points.items()):
        for rate, point in by_rate.items():
            x, bottom = rates.index(rate) + (at - (len(row.points) - 1) / 2) * width, 0.0
            for name, colour in zip(STAGES, _COLOURS, strict=True):
                height = point.stages[name].mean
                axes.bar(x, height, width * 0.92, bottom=bottom, color=colour)
                bottom += height
            half = _half(point.seconds)
            axes.errorbar(x, point.seconds.mean, yerr=half, color="black", capsize=2, linewidth=0.8)
            axes.text(x, max(bottom, point.seconds.mean + half), f" {codec}", rotation=90, ha="center", va="bottom", fontsize=7)
    keys = [plt.Rectangle((0, 0), 1, 1, color=colour) for colour in _COLOURS[: len(STAGES)]]
    keys.append(axes.axhline(row.local.mean, linestyle=":", color="black"))
    axes.axhspan(row.local.mean - _half(row.local), row.local.mean + _half(row.local), color="black", alpha=0.08, linewidth=0)
    axes.set_xticks(range(len(rates)), [str(rate) for rate in rates])
    axes.set(xlabel="Mbit/s", ylabel="seconds", title=f"{row.operation}, n = {row.size}")
    axes.margins(y=0.15)
    figure.legend(keys, [*STAGES, "on the client"], fontsize=7, ncols=4, loc="outside lower center")
    _save(figure, path)


def decisions(found: list[Row], path: Path) -> None:
    """Decision vectors (figure 3): where the node is done sooner, by operation, size, rate and codec."""
    operations, codecs, rates = _operations(found), codecs_of(found), rates_of(found)
    shape = (len(operations), len(codecs))
    figure, grid = plt.subplots(*shape, figsize=(1 + 1.9 * shape[1], 0.9 + 1.9 * shape[0]), squeeze=False, layout="constrained")
    for across, operation in zip(grid, operations, strict=True):
        rows = [row for row in found if row.operation == operation]
        for axes, codec in zip(across, codecs, strict=True):
            squares = [[_square(row.points.get(codec, {}).get(rate)) for rate in rates] for row in rows]
            axes.imshow([[value for value, _ in line] for line in squares], cmap=_PLACES, vmin=0, vmax=2, aspect="auto")
            for y, line in enumerate(squares):
                for x, (value, mark) in enumerate(line):
                    axes.text(x, y, mark, ha="center", va="center", fontsize=8, color="white" if value == 2 else "black")
            axes.set_xticks(range(len(rates)), [str(rate) for rate in rates], fontsize=7)
            axes.set_yticks(range(len(rows)), [str(row.size) for row in rows], fontsize=7)
            axes.set_title(f"{operation}, {codec}", fontsize=8)
    figure.suptitle("1: the node is done sooner · 0: the client · ~: within the noise · empty: not measured", fontsize=9)
    figure.supxlabel("Mbit/s", fontsize=9)
    figure.supylabel("n", fontsize=9)
    _save(figure, path)


def _square(point: Point | None) -> tuple[int, str]:
    return (0, "") if point is None else (1 + point.pays, f"{int(point.pays)}{'' if point.is_clear else '~'}")


def by_size(
    found: list[Row], of: Callable[[Point], Estimate | None], title: str, label: str, path: Path, scale: str = "linear"
) -> None:
    """One metric by n, a line with its band for each codec: a panel for each operation and rate."""
    operations, rates = _operations(found), rates_of(found)
    shape = (len(operations), len(rates))
    figure, grid = plt.subplots(
        *shape, figsize=(1 + 2.3 * shape[1], 1.2 + 2 * shape[0]), squeeze=False, sharex=True, sharey="row", layout="constrained"
    )
    drawn: dict[str, Any] = {}
    for across, operation in zip(grid, operations, strict=True):
        rows = [row for row in found if row.operation == operation]
        for axes, rate in zip(across, rates, strict=True):
            for codec in codecs_of(rows):
                known = [(row.size, of(row.points[codec][rate])) for row in rows if rate in row.points.get(codec, {})]
                line = [(size, estimate) for size, estimate in known if estimate is not None]
                if line:
                    drawn[codec] = _band(axes, line, _CODECS[codec])
            axes.set_yscale(scale)
            axes.set_title(f"{operation}, {rate} Mbit/s", fontsize=8)
            axes.tick_params(labelsize=7)
    for axes in grid[-1]:
        axes.set_xlabel("n", fontsize=8)
    figure.suptitle(title, fontsize=10)
    figure.supylabel(label, fontsize=9)
    figure.legend(drawn.values(), drawn.keys(), fontsize=8, ncols=len(drawn), loc="outside lower center")
    _save(figure, path)


def _band(axes: Any, line: list[tuple[int, Estimate]], colour: str) -> Any:
    sizes = [size for size, _ in line]
    (drawn,) = axes.plot(sizes, [estimate.mean for _, estimate in line], marker="o", markersize=3, color=colour)
    low = [estimate.mean - _half(estimate) for _, estimate in line]
    high = [estimate.mean + _half(estimate) for _, estimate in line]
    axes.fill_between(sizes, low, high, color=colour, alpha=0.18, linewidth=0)
    return drawn


def penalties(found: list[Row], path: Path) -> None:
    """Cumulative penalty vectors by size (figure 5)."""
    operations = _operations(found)
    figure, grid = plt.subplots(
        1, len(operations), figsize=(1 + 3.4 * len(operations), 3.6), squeeze=False, layout="constrained"
    )
    for axes, operation in zip(grid[0], operations, strict=True):
        rows = [row for row in found if row.operation == operation]
        for codec in codecs_of(rows):
            line = [(row.size, row.cumulative[codec]) for row in rows if codec in row.points]
            _band(axes, line, _CODECS[codec]).set_label(codec)
        axes.set_title(operation, fontsize=9)
        axes.set(xlabel="n")
        axes.legend(fontsize=7)
    grid[0][0].set_ylabel("seconds")
    figure.suptitle("What the node costs where it is the wrong place, over all rates", fontsize=10)
    _save(figure, path)


def draw(found: list[Row], folder: Path) -> list[Path]:
    """Every picture, into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = {
        name: folder / f"{name}.png" for name in ("decisions", "to-json", "marshalling", "wrong-decisions", "penalties")
    }
    decisions(found, pictures["decisions"])
    by_size(found, lambda point: point.to_json, "Completion over JSON's", "ratio", pictures["to-json"])
    by_size(
        found, lambda point: point.share, "Marshalling and network in completion", "part of the whole", pictures["marshalling"]
    )
    wrong = "What the wrong place costs, the node's or the client's"
    by_size(found, lambda point: point.penalty, wrong, "seconds", pictures["wrong-decisions"], "log")
    # Where each size was measured at other rates, their sums say nothing of each other.
    most = max(len(rates_of([row])) for row in found)
    penalties([row for row in found if len(rates_of([row])) == most], pictures["penalties"])
    for row in found:
        name = f"{row.operation}-{row.size}"
        pictures[name] = folder / f"{name}.png"
        completion(row, pictures[name])
    return list(pictures.values())


def page(found: list[Row], text: str, folder: Path) -> Path:
    """Draws everything into the folder, and a page that holds it. Says where the page is."""
    body = "".join(_image(path) for path in draw(found, folder))
    out = folder / "index.html"
    out.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Offloading: the study's sweep</title>"
        "<style>body{font:15px sans-serif;margin:2em}img{max-width:100%}pre{overflow-x:auto}</style>"
        f"<h1>Offloading: the study's sweep</h1>{body}<pre>{html.escape(text)}</pre></html>\n"
    )
    return out


def _operations(found: list[Row]) -> list[str]:
    return list(dict.fromkeys(row.operation for row in found))


def _half(estimate: Estimate) -> float:
    """A single run has no interval to draw."""
    return 0.0 if math.isnan(estimate.half) else estimate.half


def _save(figure: Any, path: Path) -> None:
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _image(path: Path) -> str:
    return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
