"""Merging: the parts of a build become the very bytes of the build in one piece, or one clear error."""

import hashlib
import itertools
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from jitlto.base.errors import BuildError, DatabaseError
from jitlto.base.versions import Architecture, Version
from jitlto.build import proof
from jitlto.build.cache.cache import Cache, open_cache
from jitlto.build.interface_proof import Faults
from jitlto.build.merge import merge_databases
from jitlto.build.pipeline import build
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.build.shards import Shard, digest_sources
from jitlto.cli import cli
from jitlto.database import FragmentDatabase, writer
from jitlto.families import declaration
from jitlto.record.family_record import FamilyRecord, GroupRecord, PartRecord
from jitlto.record.fragment import Fragment, FragmentKey, Image, ImageKind, Role, Symbol, SymbolKind
from jitlto.record.options import LinkOptions
from tests.support.errors import raises
from tests.support.families import MINI, write_family


@dataclass(frozen=True)
class Whole:
    """The database of an unsharded build, and the data for the records of its parts."""

    path: Path
    families: tuple[FamilyRecord, ...]
    fragments: tuple[Fragment, ...]
    blobs: dict[str, bytes]
    contents: dict[FragmentKey, str]
    faults: Faults

    def part(self, path: Path, shard: str, keys: Iterable[FragmentKey], **changes: Any) -> Path:
        """Write the part that holds ``keys``, with ``changes`` to its record."""
        held = set(keys)
        own = [fragment for fragment in self.fragments if fragment.key in held]
        names = {image.sha256 for fragment in own for image in fragment.images}
        toolchains = tuple((record.name, "nvrtc 12.9.86") for record in self.families)
        contents = hashlib.sha256(repr(sorted(self.contents.items())).encode()).hexdigest()
        number, count = map(int, shard.split("/"))
        made = number, count, contents, len(self.contents), toolchains, self.faults, ("the matrix is odd",)
        part = PartRecord(*made)
        blobs = {name: self.blobs[name] for name in names}
        writer.write(path, self.families, own, blobs, part=structs.replace(part, **changes))
        return path

    def parts(self, directory: Path, count: int) -> list[Path]:
        """Deal the fragments out to ``count`` parts."""
        keys = [fragment.key for fragment in self.fragments]
        return [
            self.part(directory / f"part-{number + 1}.fragdb", f"{number + 1}/{count}", keys[number::count])
            for number in range(count)
        ]


def whole(path: Path, faults: Faults, contents: dict[FragmentKey, str]) -> Whole:
    with FragmentDatabase(path) as opened:
        fragments = tuple(opened.fragments())
        blobs = {image.sha256: opened.read(image) for fragment in fragments for image in fragment.images}
        return Whole(path, tuple(opened.families.values()), fragments, blobs, contents, faults)


@pytest.mark.slow
@pytest.mark.parametrize(("database", "counts"), [("mini_path", (4, 9)), ("sass_path", (4,))])
def test_shards_built_for_real_merge_to_the_bytes_of_one_build(
    database: str, counts: tuple[int, ...], request: pytest.FixtureRequest, tmp_path: Path, cache: Cache
) -> None:
    whole: Path = request.getfixturevalue(database)
    loaded = declaration.load_family(whole.with_name("family.toml"))
    for count in counts:
        parts = [
            build([loaded], tmp_path / f"{n}.fragdb", jobs=1, shard=Shard(n, count), cache=cache).path
            for n in range(1, count + 1)
        ]
        merge_databases(parts[::-1], tmp_path / "out.fragdb")
        assert (tmp_path / "out.fragdb").read_bytes() == whole.read_bytes()


@pytest.fixture(scope="module")
def mini(mini_path: Path, tmp_path_factory: pytest.TempPathFactory) -> Whole:
    """The family ``mini`` built in one piece, really."""
    directory = tmp_path_factory.mktemp("mini")
    loaded = declaration.load_family(write_family(directory, MINI))
    path = Path(shutil.copy(mini_path, directory))
    return whole(path, (), digest_sources(RenderedFamilies([loaded])))


# --- A family by hand, for what need not be compiled ---

_FUNCTION = Symbol("_Z2opf", SymbolKind.FUNCTION, "(4)(4)")


def by_hand(
    path: Path, name: str = "f", *, requires: Symbol = _FUNCTION, faults: Faults = (), data: bytes = b""
) -> Whole:
    """A kernel and four device functions that each provide ``op``."""
    groups = (
        GroupRecord("kern", Role.ENTRYPOINT, ("t",), None, False),
        GroupRecord("op", Role.DEVICE, ("n",), "op.cuh", False),
    )
    headers = (("op.cuh", "float op(float);\n"),)
    record = FamilyRecord(name, (), LinkOptions(), (Architecture(75),), groups, headers, interfaces=("op.cuh",))
    blobs: dict[str, bytes] = {}

    def image(text: bytes) -> Image:
        sha = hashlib.sha256(text + data).hexdigest()
        blobs[sha] = text + data
        return Image(ImageKind.LTOIR, Architecture(75), sha, len(text + data), "nvrtc", Version(12, 9))

    kernel = Fragment(
        FragmentKey.make(name, "kern", {"t": "float"}),
        Role.ENTRYPOINT,
        "kern",
        (),
        (),
        (requires,),
        (image(b"kern"),),
    )
    ops = [
        Fragment(FragmentKey.make(name, "op", {"n": n}), Role.DEVICE, "", (), (_FUNCTION,), (), (image(n.encode()),))
        for n in "abcd"
    ]
    writer.write(path, [record], [kernel, *ops], blobs)
    keys = (kernel.key, *(op.key for op in ops))
    return whole(path, faults, {key: f"source of {key}" for key in keys})


@pytest.fixture
def hand(tmp_path: Path) -> Whole:
    return by_hand(tmp_path / "whole.fragdb")


# --- The same bytes ---


def test_parts_in_any_order_give_the_bytes_of_the_build_in_one_piece(mini: Whole, tmp_path: Path) -> None:
    parts = mini.parts(tmp_path, 3)
    for order in itertools.permutations(parts):
        report = merge_databases(order, tmp_path / "merged.fragdb")
        assert (tmp_path / "merged.fragdb").read_bytes() == mini.path.read_bytes()
        assert report.fragments == mini.fragments
        assert [each.message for each in report.advice] == ["the matrix is odd"]
    with FragmentDatabase(tmp_path / "merged.fragdb") as opened:
        assert (opened.part, opened.digest) == (None, report.digest)


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_split_merges_to_the_same_bytes(mini: Whole, tmp_path: Path, data: st.DataObject) -> None:
    """Includes empty parts, and fragments in several parts."""
    count = data.draw(st.integers(1, 8))
    places = st.sets(st.integers(1, count), min_size=1, max_size=2)
    held = {fragment.key: data.draw(places) for fragment in mini.fragments}
    parts = [
        mini.part(
            tmp_path / f"{number}.fragdb", f"{number}/{count}", [k for k, where in held.items() if number in where]
        )
        for number in data.draw(st.permutations(range(1, count + 1)))
    ]
    merge_databases(parts, tmp_path / "merged.fragdb")
    assert (tmp_path / "merged.fragdb").read_bytes() == mini.path.read_bytes()


def test_a_part_without_fragments_need_not_be_there(hand: Whole, tmp_path: Path) -> None:
    parts = hand.parts(tmp_path, 7)
    merge_databases(parts[:5], tmp_path / "merged.fragdb")
    assert (tmp_path / "merged.fragdb").read_bytes() == hand.path.read_bytes()


def test_complete_databases_of_different_families_are_joined(hand: Whole, mini: Whole, tmp_path: Path) -> None:
    both = {**hand.blobs, **mini.blobs}
    writer.write(tmp_path / "both", [*hand.families, *mini.families], [*hand.fragments, *mini.fragments], both)
    merge_databases([mini.path, hand.path], tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "both").read_bytes()
    merge_databases([*mini.parts(tmp_path, 2), hand.path, hand.path], tmp_path / "joined")
    assert (tmp_path / "joined").read_bytes() == (tmp_path / "both").read_bytes()


# --- What is refused ---


def test_a_complete_database_and_a_part_of_the_same_family_are_not_mixed(mini: Whole, tmp_path: Path) -> None:
    part, _ = mini.parts(tmp_path, 2)
    refused([mini.path, part], "build-part-and-whole", str(mini.path), "part 1 of 2", where=str(part))


def refused(paths: list[Path], code: str, *names: str, where: str | None = None, **options: Any) -> None:
    """Merge databases that must be rejected: one error, and no file."""
    output = paths[0].parent / "refused.fragdb"
    with raises(BuildError, code, *names, where=where):
        merge_databases(paths, output, **options)
    assert not output.exists()


def test_a_missing_part_is_named(hand: Whole, tmp_path: Path) -> None:
    one, _, three = hand.parts(tmp_path, 3)
    code = "build-missing-parts"
    refused([one, three], code, "2 fragments", "1 of 3, 3 of 3", "--shard I/N")
    refused([three, three], code, "4 fragments", "parts 3 of 3 ")


def test_one_key_with_two_contents_is_refused(hand: Whole, tmp_path: Path) -> None:
    one, two = hand.parts(tmp_path, 2)
    other = by_hand(tmp_path / "other.fragdb", data=b"!")
    again = other.part(tmp_path / "again.fragdb", "1/2", [fragment.key for fragment in other.fragments[:1]])
    refused([one, two, again], "build-conflict", "f/kern[t=float]", str(one), str(again))


def test_parts_of_different_wholes_are_refused(hand: Whole, mini: Whole, tmp_path: Path) -> None:
    one, two = hand.parts(tmp_path, 2)
    (tmp_path / "mini").mkdir()
    keys = [fragment.key for fragment in hand.fragments[1::2]]
    changed = replace(hand, contents=dict.fromkeys(hand.contents, "another source"))
    declared = replace(hand, families=(structs.replace(hand.families[0], options=("-DX",)),))
    other = mini.parts(tmp_path / "mini", 2)[0], changed.part(tmp_path / "x", "2/2", keys)
    for odd in (*other, declared.part(tmp_path / "y", "2/2", keys)):
        refused([one, odd], "build-foreign-part", str(one), where=str(odd))
        refused([one, two, odd], "build-foreign-part", str(one), where=str(odd))


def test_parts_of_different_compilers_are_refused(hand: Whole, tmp_path: Path) -> None:
    one, two = hand.parts(tmp_path, 2)
    keys = [fragment.key for fragment in hand.fragments[1::2]]
    other = hand.part(tmp_path / "other", "2/2", keys, toolchains=(("f", "nvrtc 12.8.93"),))
    names = ["family f", "nvrtc 12.9.86 in", "nvrtc 12.8.93 in", str(one), str(other)]
    refused([one, other], "build-mixed-compilers", *names)
    # Who compiled nothing mixes nothing.
    idle = hand.part(tmp_path / "idle", "3/3", [], toolchains=(("f", "nvrtc 12.8.93"),))
    merge_databases([one, two, idle], tmp_path / "merged")


def test_a_family_in_two_databases_is_refused_unless_they_agree(hand: Whole, tmp_path: Path) -> None:
    other = by_hand(tmp_path / "other.fragdb", data=b"!")
    code = "build-conflict"
    refused([hand.path, other.path], code, "the family f differs", str(hand.path), str(other.path))
    blobs = {image.sha256: hand.blobs[image.sha256] for f in hand.fragments[:-1] for image in f.images}
    writer.write(tmp_path / "less", hand.families, hand.fragments[:-1], blobs)
    refused([hand.path, tmp_path / "less"], code, "the family f differs")
    writer.write(tmp_path / "new", [structs.replace(hand.families[0], options=("-DX",))], hand.fragments, hand.blobs)
    refused([tmp_path / "new", hand.path], code, "the family f differs")
    parts = by_hand(tmp_path / "third.fragdb", data=b"?").parts(tmp_path, 2)
    refused([*parts, hand.path], "build-part-and-whole", str(hand.path), "family f", where=str(parts[0]))
    merge_databases([hand.path, hand.path], tmp_path / "merged")
    assert (tmp_path / "merged").read_bytes() == hand.path.read_bytes()


def test_checks_of_the_whole_family_run_at_the_merge(tmp_path: Path) -> None:
    """Kernel and device function meet in no part: only the merge can see that the kernel declares it by itself."""
    unsound = by_hand(tmp_path / "whole.fragdb", faults=(("f", "_Z2opf"),))
    refused(unsound.parts(tmp_path, 5), "build-interface-undeclared", "f/kern[t=float]", "op.cuh")
    unsound = by_hand(tmp_path / "whole.fragdb", requires=Symbol("_Z2opf", SymbolKind.FUNCTION, "(8)(8)"))
    with raises(BuildError, "build-unplanned-kernels", "f/kern[t=float]", "(8)(8)", "(4)(4)"):
        merge_databases(unsound.parts(tmp_path, 5), tmp_path / "merged.fragdb")


def test_a_merge_plans_every_kernel_once(hand: Whole, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lonely = by_hand(tmp_path / "whole.fragdb", requires=Symbol("_Z5otherf", SymbolKind.FUNCTION, "(4)(4)"))
    with raises(BuildError, "build-unplanned-kernels", "other(float)", "f/kern[t=float]"):
        merge_databases(lonely.parts(tmp_path, 2), tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    first, *rest = merge_databases(lonely.parts(tmp_path, 2), tmp_path / "merged", allow_incomplete=True).advice
    assert first.message == "the matrix is odd"
    assert any("other(float)" in each.message and "f/kern[t=float]" in each.message for each in rest)
    cache, parts = open_cache(tmp_path / "cache"), hand.parts(tmp_path, 2)
    merge_databases(parts, tmp_path / "merged", cache=cache)
    monkeypatch.setattr(proof, "enumerate_kernels", None)
    merge_databases(parts, tmp_path / "merged", cache=cache)


# --- Files ---


def test_a_damaged_part_is_named(hand: Whole, tmp_path: Path) -> None:
    one, two = hand.parts(tmp_path, 2)
    data = two.read_bytes()
    image = next(iter(hand.fragments[1].images))
    at = data.rindex(hand.blobs[image.sha256])  # the bytes of an image, which opening does not look at
    for damaged in (data[:5000], data[:at] + b"\xff" + data[at + 1 :]):
        two.write_bytes(damaged)
        with raises(DatabaseError, "database-damaged", where=str(two)):
            merge_databases([one, two], tmp_path / "merged")
        assert not (tmp_path / "merged").exists()


# --- The command ---


def test_the_command_merges_and_prints_a_summary(hand: Whole, tmp_path: Path) -> None:
    one, two = (str(path) for path in hand.parts(tmp_path, 2))
    done = CliRunner().invoke(cli, ["merge", "-o", str(tmp_path / "merged"), two, one])
    assert done.exit_code == 0
    assert "5 fragments → 4 kernels from 2 files in" in done.output
    assert "warning: the matrix is odd" in done.output
    assert (tmp_path / "merged").read_bytes() == hand.path.read_bytes()
    done = CliRunner().invoke(cli, ["merge", "--json", "-o", str(tmp_path / "merged"), two, one])
    report = json.loads(done.stdout)
    assert report["fragments"] == [str(fragment.key) for fragment in hand.fragments]
    assert len(report["digest"]) == 64
