"""The table ``tune`` of an entrypoint: from ``family.toml`` into the database, and each mistake in it."""

from pathlib import Path

import msgspec
import pytest

from jitlto.base.errors import FamilyError
from jitlto.build.rendered_families import RenderedFamilies, family_record
from jitlto.database import _records as records
from jitlto.families import declaration
from jitlto.record.tuning import TuneRecord
from tests.support import tuned
from tests.support.errors import raises
from tests.support.families import MINI, write_family

TUNED = tuned.TUNED | {"family.toml": tuned.TUNED["family.toml"] + "tolerance = 0.5\n"}


def record(directory: Path, files: dict[str, str]) -> TuneRecord | None:
    group = family_record(declaration.load_family(write_family(directory, files))).group("kern")
    assert group is not None
    return group.tune


def test_what_is_declared_is_what_the_database_holds(tmp_path: Path) -> None:
    assert record(tmp_path, TUNED) == TuneRecord((("op_name", "twice"),), ((128,), (256,)), (("n", "log2"),), 0.5)
    family = family_record(declaration.load_family(tmp_path / "family.toml"))
    assert records.decode_family(records.encode(family)) == family


def test_a_family_without_the_table_is_stored_as_before(tmp_path: Path) -> None:
    family = family_record(declaration.load_family(write_family(tmp_path, MINI)))
    assert b"tune" not in records.encode(family)
    assert record(tmp_path, MINI) is None


# (what is replaced, by what, what the error names)
MISTAKES = [
    ('{op_name = "twice"}', '{op = "twice"}', "op_name"),
    ('{n = "log2"}', '{n = "cube"}', "cube"),
    ('{n = "log2"}', '{data_type = "log2"}', "data_type"),
    ("[128, 256]", "[128, 128]", "twice"),
    ("[128, 256]", "[[]]", "block"),
    ("[128, 256]", "[[1, 1, 1, 1]]", "block"),
    ("[128, 256]", "[0]", "block"),
    ("tolerance = 0.5", "tolerance = 1.0", "tolerance"),
]


@pytest.mark.parametrize(("old", "new", "name"), MISTAKES)
def test_a_mistake_in_the_table(tmp_path: Path, old: str, new: str, name: str) -> None:
    toml = TUNED["family.toml"].replace(old, new)
    assert toml != TUNED["family.toml"]
    with raises(FamilyError, "family-tune", name, where="family.toml in [entrypoint.kern.tune]"):
        record(tmp_path, TUNED | {"family.toml": toml})


def test_the_table_is_for_entrypoints_and_declares_a_choice(tmp_path: Path) -> None:
    toml = MINI["family.toml"] + '[device.op.tune]\nfree = {op_name = "twice"}\n'
    with raises(FamilyError, "family-unknown-key", "tune"):
        record(tmp_path, MINI | {"family.toml": toml})
    with raises(FamilyError, "family-tune", "no choice"):
        record(tmp_path, MINI | {"family.toml": MINI["family.toml"] + "[entrypoint.kern.tune]\n"})


def test_a_default_that_no_fragment_has_is_advice(tmp_path: Path) -> None:
    for place, (value, names) in enumerate({"twice": (), "thrice": ("mini/kern", "op_name=thrice")}.items()):
        toml = TUNED["family.toml"].replace('"twice"', f'"{value}"')
        path = write_family(tmp_path / str(place), TUNED | {"family.toml": toml})
        advice = RenderedFamilies([declaration.load_family(path)]).unknown_defaults()
        assert len(advice) == bool(names)
        assert all(name in each.message for name in names for each in advice)


def test_a_forged_record_is_refused(tmp_path: Path) -> None:
    whole = records.encode(family_record(declaration.load_family(write_family(tmp_path, TUNED))))
    for old, new in ((b"[128]", b"[-4]"), (b"[128]", b"[1,1,1,1]"), (b'"log2"', b'"log3"'), (b"0.5", b"1.5")):
        assert old in whole
        with pytest.raises(msgspec.MsgspecError):
            records.decode_family(whole.replace(old, new))
