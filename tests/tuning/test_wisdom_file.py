"""Files of wisdom: what is written is read, and anything else is refused in one way."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.entry import decode, encode
from jitlto.base.errors import WisdomError
from jitlto.tuning import wisdom_file
from jitlto.tuning.wisdom import Wisdom
from tests.support.errors import raises
from tests.support.wisdom import entry, trial, wisdoms

SOME = Wisdom([entry(trial(1.0), trial(0.5, veclen="4")), entry(trial(2.0), rows=4096)])


@pytest.mark.slow
@given(wisdoms)
def test_what_is_written_is_read_and_equal_wisdom_makes_equal_bytes(wisdom: Wisdom) -> None:
    data = wisdom_file.encode(wisdom)
    assert wisdom_file.decode(data, "file").entries == wisdom.entries
    assert wisdom_file.encode(Wisdom(reversed(wisdom.entries))) == data


@pytest.mark.slow
@given(st.data())
def test_a_damaged_file_is_refused_or_the_same(data: st.DataObject) -> None:
    whole = bytearray(wisdom_file.encode(SOME))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(whole) - 1))
        match data.draw(st.sampled_from(["flip", "cut", "remove", "repeat"])):
            case "flip":
                whole[at] ^= 1 << data.draw(st.integers(0, 7))
            case "cut":
                del whole[at + 1 :]
            case "remove":
                del whole[at : at + data.draw(st.integers(1, 40))]
            case "repeat":
                whole[at:at] = whole[at : at + 40]
        if not whole:
            break
    try:
        read = wisdom_file.decode(bytes(whole), "file")
    except WisdomError as error:
        assert error.code == "wisdom-damaged"
    else:
        assert read.entries == SOME.entries


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b'{"jitlto_wisdom":1,"sha256":"","entries":[]}',
        encode("wisdom", b"{}", schema=2),
        encode("wisdom", SOME.entries[0].encoded),  # its variants had launches and link options
    ],
)
def test_an_earlier_or_another_file_is_refused(data: bytes) -> None:
    with raises(WisdomError, "wisdom-damaged", where="here.wisdom"):
        wisdom_file.decode(data, "here.wisdom")


@pytest.mark.parametrize(
    ("old", "new"),
    [(b'"seconds":1.0', b'"seconds":-1.0'), (b'"seconds":1.0', b'"seconds":NaN'), (b'"seconds":1.0', b'"seconds":0'),
     (b'"count":10', b'"count":0'), (b'"block":[]', b'"block":[0]'),
     (b'"family":"mini"', b'"family":""')],
)  # fmt: skip
def test_a_forged_file_with_impossible_values_is_refused(old: bytes, new: bytes) -> None:
    payload = decode("wisdom", wisdom_file.encode(SOME), schema=2)
    assert payload is not None
    assert old in payload
    with raises(WisdomError, "wisdom-damaged"):
        wisdom_file.decode(encode("wisdom", payload.replace(old, new), schema=2), "file")


def test_files_on_the_disk(tmp_path: Path) -> None:
    path = tmp_path / "new" / "some.wisdom"
    wisdom_file.write(path, SOME)
    assert wisdom_file.read(path).entries == SOME.entries
    with raises(WisdomError, "wisdom-unreadable", where="missing"):
        wisdom_file.read(tmp_path / "missing")
    with raises(WisdomError, "wisdom-unreadable"):
        wisdom_file.read(tmp_path)
    with raises(WisdomError, "wisdom-unwritable"):
        wisdom_file.write(tmp_path, SOME)


@pytest.mark.slow
def test_processes_that_add_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "own.wisdom"
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda rows: wisdom_file.add(path, entry(trial(1.0), rows=rows)), range(40)))
    assert len(wisdom_file.read(path).entries) == 40


def test_what_is_added_takes_the_place_of_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "new" / "own.wisdom"
    for seconds in (1.0, 2.0):
        wisdom_file.add(path, entry(trial(seconds)))
    assert [each.default.seconds for each in wisdom_file.read(path).entries] == [2.0]
