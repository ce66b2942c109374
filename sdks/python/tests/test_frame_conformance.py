"""Every folder of contracts/conformance/frame is read and written as its case.json says."""

import json
import struct
from pathlib import Path

import pytest

from lighterage.travel import frame
from lighterage.unit import api
from lighterage.unit import work as unit_work

CASES = Path(__file__).parents[3] / "contracts/conformance/frame"
KINDS = {"call": frame.CALL, "reply": frame.REPLY, "failure": frame.FAILURE, "event": frame.EVENT}


def folders():
    found = sorted(folder.name for folder in CASES.iterdir() if folder.is_dir())
    assert len(found) > 50
    return found


class Exact:
    """A float by its bits, so that NaNs with bits of their own and negative zeros are told apart."""

    def __init__(self, value):
        self.bits = struct.pack("<d", value)

    def __eq__(self, other):
        return isinstance(other, Exact) and self.bits == other.bits


def from_notation(body):
    if isinstance(body, list):
        return [from_notation(item) for item in body]
    if not isinstance(body, dict):
        return body
    ((tag, value),) = body.items()
    if tag == "i64":
        return int(value)
    if tag == "f64":
        return struct.unpack(">d", bytes.fromhex(value))[0]
    if tag == "bytes":
        return bytes.fromhex(value)
    if tag == "map":
        return {key: from_notation(item) for key, item in value}
    if tag == "tagged":
        return frame.Tagged(value[0], from_notation(value[1]))
    if tag == "buffer":
        return frame.Buffer(memoryview(bytes.fromhex(value)))
    assert tag == "array"
    return frame.Array(
        value["class"],
        value["byte-order"],
        value["layout"],
        value["item-bytes"],
        tuple(int(axis) for axis in value["shape"]),
        value["unit"],
        memoryview(bytes.fromhex(value["data"])),
    )


def exact(body):
    if isinstance(body, list):
        return [exact(item) for item in body]
    if isinstance(body, dict):
        return [(key, exact(item)) for key, item in body.items()]
    if isinstance(body, frame.Tagged):
        return ("tagged", body.name, exact(body.value))
    return (type(body), Exact(body) if isinstance(body, float) else body)


@pytest.mark.parametrize("name", folders())
def test_the_case_means_what_it_says(name):
    case = json.loads((CASES / name / "case.json").read_text())
    data = bytes.fromhex((CASES / name / "frame.hex").read_text())
    limits = frame.Limits(**{key.replace("-", "_"): int(value) for key, value in case.get("limits", {}).items()})
    if case.get("record") == "failure" and "error" in case:
        # What a handler says of its failure a host reads; a unit writes it.
        assert frame.decode(data, limits).kind == frame.FAILURE and case["error"] == "record-field"
        return
    if "error" in case:
        with pytest.raises(frame.FrameError) as error:
            found = frame.decode(data, limits)
            assert "record" in case, "decoding should have failed"
            api.event_in(found, frame.EVENT)
        assert error.value.word == case["error"]
        return
    found = frame.decode(data, limits)
    assert (found.kind, found.id) == (KINDS[case["kind"]], int(case["id"]))
    assert exact(found.body) == exact(from_notation(case["body"]))
    if case.get("written"):
        pieces = frame.encode(
            from_notation(case["body"]),
            kind=found.kind,
            id=found.id,
            checksum_buffers=case["checksum"] == "all",
        )
        assert b"".join(pieces) == data
    if case.get("record") == "event":
        assert_is(api.event_in(found, frame.EVENT), from_notation(case["body"]))
    if case.get("record") == "failure":
        fields = from_notation(case["body"])
        assert b"".join(frame.encode(unit_work._failure(**fields), kind=frame.FAILURE, id=found.id)) == data


def assert_is(event, record):
    """The event that a handler is given is the record, what it leaves out as the contract says."""
    data = record.get("data", b"")
    assert event == api.Event(
        id=record.get("id", ""),
        source=record.get("source", ""),
        type=record["type"],
        time_ms=record.get("time-ms", 0),
        attempt=record.get("attempt", 1),
        data=data if isinstance(data, bytes) else bytes(data.data),
        subject=record.get("subject"),
        content_type=record.get("content-type"),
        attributes=tuple(map(tuple, record.get("attributes", []))),
    )


def test_a_handler_is_not_called_with_what_is_no_event():
    """A unit's own work is of kind call; what it answers says what was wrong, and nothing was run."""
    ran = []
    unit = object.__new__(unit_work.Work)
    unit._handle = unit._event
    for kind, record, word in (
        (frame.REPLY, {"type": "tick"}, "record-kind"),
        (frame.CALL, {"type": "tick", "colour": "red"}, "record-field"),
        (frame.CALL, {"id": "1"}, "record-field"),
    ):
        said = frame.decode(b"".join(unit._outcome(frame.Frame(kind, 7, record), ran.append)))
        assert (said.kind, said.id, said.body["kind"]) == (frame.FAILURE, 7, "trapped") and word in said.body["message"]
    assert not ran
    unit._outcome(frame.Frame(frame.CALL, 7, {"type": "tick"}), ran.append)
    assert ran == [api.Event("", "", "tick", 0, 1, b"")]
