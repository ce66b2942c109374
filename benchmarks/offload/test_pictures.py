"""The sweep's metrics, text and pictures, from a small record whose numbers can be told beforehand."""

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

import metrics
import plots
import report
from sweep import Cell


def cell(operation, size, rate, codec, run, *totals):
    """Runs of these seconds, of which `run` is the work and half of the rest encoding."""
    stages = [
        {"encode": (total - run) / 2, "decode": 0.0, "down": 0.0, "there": {"run": run, "decode": 0.0, "encode": 0.0}}
        for total in totals
    ]
    return Cell(operation, size, rate, codec, list(totals), stages if rate else [])


@pytest.fixture
def found():
    made = []
    for size, scale in ((400, 1.0), (800, 4.0)):
        made.append(cell("multiplication", size, 0, "local", 0, 0.9 * scale, 1.0 * scale, 1.1 * scale))
        for rate in (10, 100):
            slow = scale * 100 / rate
            made.append(cell("multiplication", size, rate, "json", 0.2 * scale, 3.9 * slow, 4.0 * slow, 4.1 * slow))
            made.append(cell("multiplication", size, rate, "frame", 0.2 * scale, 0.45 * slow, 0.5 * slow, 0.55 * slow))
    # Measured at one rate only, and one that was not measured here at all.
    made.append(cell("multiplication", 1200, 0, "local", 0, 9.0, 9.1, 9.2))
    made.append(cell("multiplication", 1200, 100, "frame", 1.0, 4.0, 4.1, 4.2))
    made.append(cell("inversion", 400, 100, "frame", 1.0, 4.0, 4.1, 4.2))
    return metrics.rows({one.key: one for one in made})


def test_metrics_have_their_confidence(found):
    first, _, last = found
    assert first.local.mean == pytest.approx(1.0) and first.local.half == pytest.approx(4.30 * 0.1 / 3**0.5)
    fast, slow = first.points["frame"][100], first.points["frame"][10]
    assert fast.pays and fast.is_clear and not slow.pays and slow.is_clear
    assert fast.to_json.mean == pytest.approx(0.125) and 0 < fast.to_json.half < 0.125
    assert fast.share.mean == pytest.approx(1 - 0.2 / 0.5, abs=0.01)
    assert sum(stage.mean for stage in fast.stages.values()) == pytest.approx(0.5)
    assert fast.penalty.mean == pytest.approx(0.5) and slow.penalty.mean == pytest.approx(4.0)
    assert first.cumulative["frame"].mean == pytest.approx(4.0)
    assert first.cumulative["json"].mean == pytest.approx(39 + 3)
    assert last.points["frame"][100].to_json is None


def test_what_lies_within_the_noise_is_said_to(found):
    near = [cell("logarithm", 9, 0, "local", 0, 1.0, 1.4, 1.2), cell("logarithm", 9, 100, "raw", 0.1, 1.1, 1.0, 1.3)]
    (row,) = metrics.rows({one.key: one for one in near})
    assert row.points["raw"][100].pays and not row.points["raw"][100].is_clear
    assert "1~" in metrics.text([row])


def test_the_text_has_every_metric_with_its_confidence(found):
    text = metrics.text(found)
    for title in ("Stages of completion", "decision vectors", "over JSON's", "Marshalling", "wrong place costs", "Cumulative"):
        assert title in text
    assert "500.0 ± 124.1" in text, "stage table: all of a call, in ms"
    assert all(name in text for name in metrics.STAGES)


def test_the_page_and_its_pictures_are_written(found, tmp_path):
    page = plots.page(found, metrics.text(found), tmp_path)
    pictures = {path.stem: path.read_bytes() for path in tmp_path.glob("*.png")}
    kinds = {"decisions", "to-json", "marshalling", "wrong-decisions", "penalties"}
    assert set(pictures) == kinds | {f"multiplication-{size}" for size in (400, 800, 1200)}
    assert all(data.startswith(b"\x89PNG") and len(data) > 5_000 for data in pictures.values())
    html = page.read_text()
    assert html.count("data:image/png") == len(pictures) and "Stages of completion" in html


def test_a_report_keeps_its_words_and_renews_its_tables_and_pictures(found, tmp_path):
    text = tmp_path / "study.md"
    text.write_text("Words.\n<!-- table: border -->\nold\n<!-- end -->\n![vectors](study/decisions.png)\nMore.\n")
    report.write(found, text)
    made = text.read_text()
    assert made.startswith("Words.\n") and made.endswith("More.\n") and "old" not in made
    assert "| 400 | 1.00 ± 0.25 |" in made and "**0.50 ± 0.12**" in made
    assert [path.name for path in (tmp_path / "study").iterdir()] == ["decisions.png"]
    report.write(found, text)
    assert text.read_text() == made
    text.write_text("<!-- table: none -->\n<!-- end -->\n")
    with pytest.raises(report.Unknown, match="border"):
        report.write(found, text)


def test_every_table_can_be_made(found):
    for make in report.TABLES.values():
        lines = make(found).splitlines()
        assert len(lines) > 2 and len({line.count("|") for line in lines}) == 1
