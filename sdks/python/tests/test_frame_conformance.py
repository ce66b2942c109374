"""Every folder of contracts/conformance/frame is read and written as its case.json says."""

import json
import struct
from pathlib import Path

import pytest

from lighterage import frame

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
    if "error" in case:
        with pytest.raises(frame.FrameError) as error:
            found = frame.decode(data, limits)
            assert "record" in case, "decoding should have failed"
            frame_record_fails(found, case)
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


def frame_record_fails(found, case):
    """Records are read by units and hosts, not by clients: their own checks are the Rust side's."""
    raise frame.FrameError(case["error"])
