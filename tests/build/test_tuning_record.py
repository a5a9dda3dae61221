"""The table ``tune`` of an entrypoint: from ``family.toml`` and a matrix into the database, and each mistake in it."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base.errors import FamilyError, JitltoError
from jitlto.build.rendered_families import family_record
from jitlto.database import _records as records
from jitlto.families import declaration
from jitlto.packaging.family_sources import place_sources
from jitlto.record.tuning import TuneRecord
from jitlto.runtime.discovery import editable
from tests.support import tuned
from tests.support.errors import raises
from tests.support.families import MINI, write_family

TUNED = tuned.TUNED | {"family.toml": tuned.TUNED["family.toml"] + "tolerance = 0.5\n"}


def record(directory: Path, files: dict[str, str]) -> TuneRecord | None:
    group = family_record(declaration.load_family(write_family(directory, files))).group("kern")
    assert group is not None
    return group.tune


def test_what_is_declared_is_what_the_database_holds(tmp_path: Path) -> None:
    made = record(tmp_path, TUNED)
    assert made == TuneRecord(
        ("op_name",),
        (("op_name", "twice"),),
        (("n", "log2"),),
        tuple((("block", block), ("grid", "cdiv(n, block)")) for block in ("128", "256")),
        (("max_registers", (64,)),),
        ("n < 1000000 or op_name == 'square'",),
        0.5,
    )
    family = family_record(declaration.load_family(tmp_path / "family.toml"))
    assert records.decode_family(records.encode(family)) == family


def test_a_family_without_the_table_is_stored_as_before(tmp_path: Path) -> None:
    family = family_record(declaration.load_family(write_family(tmp_path, MINI)))
    assert b"tune" not in records.encode(family)
    assert record(tmp_path, MINI) is None


# (what is replaced, by what, what the error names)
MISTAKES = [
    ('free    = ["op_name"]', 'free = ["op"]\n', "op_name"),
    ('default = {op_name = "twice"}', "", "op_name"),
    ('{n = "log2"}', '{n = "cube"}', "cube"),
    ('{n = "log2"}', '{data_type = "log2"}', "data_type"),
    ("max_registers = [64]", "max_registers = 64", "max_registers"),
    ("max_registers = [64]", "fast_math = [true]", "fast_math"),
    ("n < 1000000", "m < 1", "'m'"),
    ("tolerance = 0.5", "tolerance = 1.0", "1.0"),
]


@pytest.mark.parametrize(("old", "new", "name"), MISTAKES)
def test_a_mistake_in_the_table(tmp_path: Path, old: str, new: str, name: str) -> None:
    toml = TUNED["family.toml"].replace(old, new)
    assert toml != TUNED["family.toml"]
    with raises(FamilyError, "family-tune", name, where="family.toml [entrypoint.kern.tune]"):
        record(tmp_path, TUNED | {"family.toml": toml})


@pytest.mark.parametrize(
    ("launch", "name"),
    [
        ('{"grid": "cdiv(n, blok)", "block": "1"}', "blok"),
        ('{"grid": "cdiv(n", "block": "1"}', "grid"),
        ('{"grid": "1"}', "block"),
        ('{"grid": "1", "block": "1", "blocks": "2"}', "blocks"),
    ],
)
def test_a_mistake_in_the_launch_choices(tmp_path: Path, launch: str, name: str) -> None:
    with raises(FamilyError, "family-tune", name, "launch.json"):
        record(tmp_path, TUNED | {"launch.json": launch})


def test_the_table_is_for_entrypoints_and_declares_a_choice(tmp_path: Path) -> None:
    toml = MINI["family.toml"] + '[device.op.tune]\nfree = ["op_name"]\n'
    with raises(FamilyError, "family-unknown-key", "tune"):
        record(tmp_path, MINI | {"family.toml": toml})
    with raises(FamilyError, "family-tune", "no choice"):
        record(tmp_path, MINI | {"family.toml": MINI["family.toml"] + "[entrypoint.kern.tune]\n"})


def test_a_forged_record_is_refused(tmp_path: Path) -> None:
    family = family_record(declaration.load_family(write_family(tmp_path, TUNED)))
    whole = records.encode(family)
    for old, new in ((b"max_registers", b"max_registerz"), (b"cdiv(n, block)", b"open(n, block)"), (b"[64]", b"[-4]"),
                     (b'"free":["op_name"]', b'"free":[]'), (b'"log2"', b'"log3"')):  # fmt: skip
        assert old in whole
        with pytest.raises((records.InvalidRecordError, JitltoError)):
            records.decode_family(whole.replace(old, new))


def test_the_matrix_of_launch_choices_is_one_of_the_familys_sources(tmp_path: Path) -> None:
    """It goes into an sdist and a copied family, is watched by editable installs, and is not overwritten."""
    top = tmp_path / "fragments" / "mini"
    write_family(top, {name: text for name, text in TUNED.items() if name != "launch.json"})
    write_family(tmp_path / "matrices", {"launch.json": TUNED["launch.json"]})
    declared = declaration.load_family(top / "family.toml")
    matrix = tmp_path / "matrices" / "launch.json"
    (kern,) = (group for group in declared.groups if group.name == "kern")
    assert kern.matrices == (top / "kern.json", matrix)
    assert place_sources(declared)[matrix] == Path("matrices", "launch.json")
    assert str(matrix) in {name for name, _ in editable._sources(declared)}
