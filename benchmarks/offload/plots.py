"""The sweep's pictures: PNG files, and one page of HTML that holds them all."""

from __future__ import annotations

import base64
import html
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt

from metrics import STAGES, Cells, Row, half_width, mean, stages
from sweep import Plan

_COLOURS = ("#4c72b0", "#dd8452", "#8c8c8c", "#55a868", "#c44e52", "#937860", "#da8bc3")


def completion(cells: Cells, plan: Plan, operation: str, size: int, path: Path) -> None:
    """Completion on the node by stages for each rate and codec, with the client's own time as a dotted line (figure 4)."""
    figure, axes = plt.subplots(figsize=(max(1.6 + 1.3 * len(plan.rates), 5.0), 4.6), layout="constrained")
    codecs = plan.codecs_of(operation)
    width = 0.8 / len(codecs)
    for at, codec in enumerate(codecs):
        for number, rate in enumerate(plan.rates):
            cell = cells[operation, size, rate, codec]
            x, bottom = number + (at - (len(codecs) - 1) / 2) * width, 0.0
            for name, colour in zip(STAGES, _COLOURS, strict=True):
                height = stages(cell)[name]
                label = name if at == number == 0 else None
                axes.bar(x, height, width * 0.92, bottom=bottom, color=colour, label=label)
                bottom += height
            half = half_width(cell.seconds)
            axes.errorbar(x, mean(cell.seconds), yerr=half, color="black", capsize=2, linewidth=0.8)
            axes.text(x, bottom + half, f" {codec}", rotation=90, ha="center", va="bottom", fontsize=7)
    axes.axhline(mean(cells[operation, size, 0, "local"].seconds), linestyle=":", color="black", label="on the client")
    axes.set_xticks(range(len(plan.rates)), [str(rate) for rate in plan.rates])
    axes.set(xlabel="Mbit/s", ylabel="seconds", title=f"{operation}, n = {size}")
    axes.margins(y=0.15)
    figure.legend(fontsize=7, ncols=4, loc="outside lower center")
    figure.savefig(path, dpi=110)
    plt.close(figure)


def penalties(found: list[Row], plan: Plan, operation: str, path: Path) -> None:
    """Cumulative penalty vectors by size (figure 5)."""
    rows = [row for row in found if row.operation == operation]
    figure, axes = plt.subplots(figsize=(7, 3.6), layout="constrained")
    for codec, colour in zip(plan.codecs_of(operation), _COLOURS, strict=False):
        axes.plot([row.size for row in rows], [row.cumulative[codec] for row in rows], marker="o", color=colour, label=codec)
    axes.set(xlabel="n", ylabel="seconds", title=f"{operation}: what offloading costs where it does not pay, all rates")
    axes.legend()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def page(cells: Cells, found: list[Row], plan: Plan, text: str, folder: Path) -> Path:
    """Draws everything into the folder. Says where the page is."""
    folder.mkdir(parents=True, exist_ok=True)
    pictures = []
    for operation in plan.operations:
        for size in plan.sizes:
            path = folder / f"{operation}-{size}.png"
            completion(cells, plan, operation, size, path)
            pictures.append(path)
        path = folder / f"{operation}-penalties.png"
        penalties(found, plan, operation, path)
        pictures.append(path)
    body = "".join(_image(path) for path in pictures)
    out = folder / "index.html"
    out.write_text(
        "<!doctype html><html lang=en><meta charset=utf-8><title>Offloading: the study's sweep</title>"
        "<style>body{font:15px sans-serif;margin:2em}img{max-width:100%}pre{overflow-x:auto}</style>"
        f"<h1>Offloading: the study's sweep</h1><pre>{html.escape(text)}</pre>{body}</html>\n"
    )
    return out


def _image(path: Path) -> str:
    return f'<img alt="{path.stem}" src="data:image/png;base64,{base64.b64encode(path.read_bytes()).decode()}">'
