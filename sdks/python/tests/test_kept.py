"""An array that a unit has is not sent again, and never another one in its place."""

import numpy as np
import pytest

import work
from lighterage import here
from lighterage.errors import DoesNotTravel, ReplyBroken
from lighterage.places import runtime
from lighterage.travel import calls, frame, kept, names
from lighterage.travel.arrays import lower_array
from lighterage.travel.kept import Keeper, Known, Missing

LARGE = np.random.default_rng(5).random(100_000)


def sent():
    return runtime.current.stats_of("work:total").bytes_up


@pytest.fixture
def inside(monkeypatch):
    """As in a unit that has nothing yet."""
    monkeypatch.setattr(here, "_inside_unit", True)
    monkeypatch.setattr(kept, "_store", type(kept._store)())


def test_a_large_array_is_sent_once(client):
    keeps = work.total.with_options(keep=True)
    assert keeps.remote(LARGE) == pytest.approx(LARGE.sum())
    first = sent()
    for _ in range(3):
        assert keeps.remote(LARGE) == pytest.approx(LARGE.sum())
    assert first > LARGE.nbytes and sent() - first < 2_000
    assert keeps.remote(LARGE + 1) == pytest.approx(LARGE.sum() + 100_000)
    assert sent() > first + LARGE.nbytes / 2, "another array is another one"


def test_an_array_that_was_changed_is_sent_anew(client):
    keeps = work.total.with_options(keep=True)
    array = LARGE.copy()
    before = keeps.remote(array)
    array[0] += 5
    assert keeps.remote(array) == pytest.approx(before + 5)


def test_what_the_function_does_to_it_stays_in_its_call(client):
    keeps = work.spoil.with_options(keep=True)
    assert [keeps.remote(LARGE) for _ in range(3)] == [keeps.local(LARGE.copy())] * 3


def test_a_unit_that_does_not_have_it_is_sent_it(node, client):
    keeps = work.total.with_options(keep=True)
    keeps.remote(LARGE)
    for function in node.functions.values():
        assert function.manifest["units"]["reuse_calls"] > 1
        for unit in function._idle:
            unit.kill()
        function._idle.clear()
    assert keeps.remote(LARGE) == pytest.approx(LARGE.sum())


def test_all_is_sent_to_a_unit_that_lacked_it_whatever_others_have_sent(node, client, monkeypatch):
    """Another call had sent the array to another unit between the two rounds; it was named again, and `Missing` came out."""
    keeps = work.total.with_options(keep=True)
    keeps.remote(LARGE)
    forget = Known.forget

    def forget_and_send(known):
        names = list(known._names)
        forget(known)
        assert names and not any([known.has(name) for name in names])

    monkeypatch.setattr(Known, "forget", forget_and_send)
    for function in node.functions.values():
        for unit in function._idle:
            unit.kill()
        function._idle.clear()
    assert keeps.remote(LARGE) == pytest.approx(LARGE.sum())
    before = sent()
    assert keeps.remote(LARGE) == pytest.approx(LARGE.sum()) and sent() - before < 2_000, "and it is named from then on"


def test_a_node_that_lacks_what_it_is_sent_is_broken(node, client):
    reply = b"".join(calls.write_raised(Missing("0" * 80)))
    node.break_reply = lambda handler, _: handler.send(200, reply)
    with pytest.raises(ReplyBroken, match="lacks an array"):
        work.total.with_options(keep=True).remote(LARGE)


def write(array, known):
    keeper = Keeper(known, None)
    return bytearray(b"".join(calls.write_call([array], {}, packing=calls.Packing(keeper, None))))


@pytest.mark.parametrize("array", [LARGE, np.asfortranarray(LARGE.reshape(200, 500)), LARGE.astype(">f4"), LARGE[::2]])
def test_it_arrives_as_it_was(inside, array):
    known = Known()
    for _ in range(2):
        (back,) = calls.read_call(write(array, known)).args
        assert back.dtype == array.dtype and back.shape == array.shape and back.tobytes() == array.tobytes()
        back[...] = 0


def test_the_least_used_goes_where_there_is_too_much(inside, monkeypatch):
    monkeypatch.setattr(kept, "BYTES_MAX", 2_000_000)
    known = Known()
    for number in range(4):
        calls.read_call(write(LARGE + number, known))
    calls.read_call(write(LARGE + 3, known))
    with pytest.raises(Missing):
        calls.read_call(write(LARGE, known))


def test_a_wrong_array_is_not_kept(inside):
    wrong = frame.Tagged("keep", ["0" * 80, LARGE])
    from lighterage.travel import NO_CLASSES, lower_with

    pieces = frame.encode({"args": [wrong], "kwargs": {}}, lower=lower_with(NO_CLASSES))
    with pytest.raises(DoesNotTravel, match="not what its hash says"):
        calls.read_call(bytearray(b"".join(pieces)))
    assert not kept._store


def test_nothing_is_kept_outside_of_units():
    known = Known()
    with pytest.raises(DoesNotTravel, match="only units"):
        calls.read_call(write(LARGE, known))
    with pytest.raises(Missing):
        calls.read_call(write(LARGE, known))


@pytest.fixture
def hashed(monkeypatch):
    """The arrays that were hashed, by a process that has named none before."""
    found, name_of = [], names.name_of

    def noted(array):
        found.append(bytes(array.data))
        return name_of(array)

    monkeypatch.setattr(names, "name_of", noted)
    monkeypatch.setattr(names, "_copies", type(names._copies)())
    return found


@pytest.mark.parametrize(
    "array", [LARGE, LARGE.astype(np.float32)[:-1], np.arange(70_001, dtype=np.uint8), LARGE.reshape(200, 500).T]
)
def test_the_same_array_is_hashed_once(hashed, array):
    name = kept.name_of(lower_array(array))
    assert [names.remembered_name_of(lower_array(one)) for one in (array, array, array.copy(order="K"))] == [name] * 3
    assert len(hashed) == 1


@pytest.mark.parametrize("at", [0, 1, 40_000, 70_000, -9, -1])
def test_an_array_that_differs_in_one_place_is_another_one(hashed, at):
    array = np.arange(80_003, dtype=np.uint8)
    before = names.remembered_name_of(lower_array(array))
    array[at] += 1
    after = names.remembered_name_of(lower_array(array))
    assert after == kept.name_of(lower_array(array)) != before
    array[at] -= 1
    assert names.remembered_name_of(lower_array(array)) == before


def test_arrays_of_the_same_bytes_have_names_of_their_own(hashed):
    flat = np.zeros(90_000)
    others = [flat, flat.reshape(300, 300), flat.view(np.int64), flat[:-1]]
    assert len({names.remembered_name_of(lower_array(one)) for one in others * 2}) == 4
    assert len(hashed) == 4


def test_copies_for_comparing_are_bounded(hashed, monkeypatch):
    monkeypatch.setattr(names, "COPIES_BYTES_MAX", 3 * LARGE.nbytes)
    for number in range(5):
        names.remembered_name_of(lower_array(LARGE + number))
    assert sum(copy.nbytes for copy, _ in names._copies.values()) <= 3 * LARGE.nbytes
    names.remembered_name_of(lower_array(np.concatenate([LARGE] * 4)))
    assert len(names._copies) == 3, "one that is larger than all of them together is not copied"
