"""Damage to the three kinds of files of a user: cache entries, packs and databases.

What comes back is the identical bytes and metadata; or it is a miss, which heals; or, of a database, one clear error
that names the file. Never anything else, and never another exception. ``JITLTO_TEST_DAMAGE`` sets how many places are
damaged in all.
"""

import os
import random
from dataclasses import dataclass
from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import JitltoError
from jitlto.database import FragmentDatabase, writer
from jitlto.link import packs
from jitlto.link.kernel_cache import KernelCache
from jitlto.link.sources import KERNELS
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.plan import Plan
from jitlto.runtime.family import KernelFamily
from jitlto.source.load import load

PLACES = int(os.environ.get("JITLTO_TEST_DAMAGE", "360")) // 3


def damaged(chance: random.Random, whole: bytes, others: list[bytes]) -> tuple[bytes, str]:
    """A file's bytes after something happened to them, and where; now and then another file in its place."""
    if chance.random() < 0.05:
        return chance.choice(others), "another file"
    # Heads and ends of files are as worth damaging as their large middles.
    at, where = chance.randrange(len(whole)), chance.random()
    at = min(at, chance.randrange(200)) if where < 0.3 else max(0, len(whole) - 1 - at % 200) if where < 0.4 else at
    before, run = whole[:at], whole[at : at + (1 << chance.randrange(13))]
    after, noise = whole[at + len(run) :], chance.randbytes(len(run))
    changes = [
        bytes([run[0] ^ 1 << chance.randrange(8)]) + run[1:] + after,
        b"",
        run[::-1] + after,
        noise + after,
        bytes(len(run)) + after,
        after,
        noise + run + after,
        run + run + after,
    ]
    number = chance.randrange(len(changes))
    return before + changes[number], f"damage {number} at {at}"


def code(kernel: LinkedKernel | None) -> tuple[object, ...] | None:
    """What a kernel is, wherever it comes from."""
    return kernel and (kernel.cubin, kernel.entry, kernel.target, kernel.log)


@dataclass(frozen=True)
class Sample:
    """Plans, the results of their links, and their database."""

    path: Path
    plans: list[Plan]
    kernels: dict[str, LinkedKernel]

    def entry(self, plan: Plan) -> bytes:
        return plan.link_key.encode(self.kernels[plan.digest])


@pytest.fixture(scope="module")
def sample(mini_path: Path) -> Sample:
    family = load("mini", mini_path)
    plans = [family.plan(arch=arch, **c) for c in family.configurations() for arch in ("sm_80", "sm_90a")]
    return Sample(mini_path, plans, {plan.digest: plan.link(use_cache=False) for plan in plans})


@pytest.mark.slow
def test_a_damaged_cache_entry_is_a_miss_that_heals(sample: Sample, tmp_path: Path) -> None:
    store = CacheDir(tmp_path / "cache", 1 << 30)
    cache = KernelCache(store)
    paths = {plan.digest: Path(store._path(KERNELS, plan.digest)) for plan in sample.plans}
    for plan in sample.plans:
        store.put(KERNELS, plan.digest, sample.entry(plan))
    whole = {digest: path.read_bytes() for digest, path in paths.items()}
    chance = random.Random(1)  # noqa: S311 - the same damage every time
    for _ in range(PLACES):
        plan = chance.choice(sample.plans)
        digest, links = plan.digest, []

        def link(digest: str = digest, links: list[int] = links) -> LinkedKernel:
            links.append(1)
            return sample.kernels[digest]

        others = [data for other, data in whole.items() if other != digest] + [b"", sample.path.read_bytes()]
        data, what = damaged(chance, whole[digest], others)
        paths[digest].write_bytes(data)
        harmless = data == whole[digest]
        found = cache.find(plan.digest, sample.path)
        assert found is None or (harmless and code(found) == code(sample.kernels[digest])), what
        assert (found is None) == (not harmless), what
        assert code(cache.get_or_link(plan.link_key, link, sample.path)) == code(sample.kernels[digest]), what
        assert len(links) == (0 if harmless else 1), what
        assert paths[digest].read_bytes() == whole[digest], what
        assert code(cache.find(plan.digest, sample.path)) == code(sample.kernels[digest])
    assert {path for path in store.directory.rglob("*") if path.is_file() and path.suffix != ".lock"} == {
        *paths.values()
    }


@pytest.mark.slow
def test_a_damaged_pack_gives_identical_kernels_or_none(
    sample: Sample, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    entries = {plan.digest: sample.entry(plan) for plan in sample.plans}
    packs.write(tmp_path / "whole.pack", {KERNELS: entries})
    packs.write(tmp_path / "half.pack", {KERNELS: dict(list(entries.items())[::2])})
    crossed = dict(zip(entries, [*list(entries.values())[1:], next(iter(entries.values()))], strict=True))
    packs.write(tmp_path / "crossed.pack", {KERNELS: crossed})
    whole = (tmp_path / "whole.pack").read_bytes()
    others = [(tmp_path / name).read_bytes() for name in ("half.pack", "crossed.pack")] + [b"", whole]
    chance, cache = random.Random(2), KernelCache(None)  # noqa: S311
    for number in range(PLACES):
        path = tmp_path / f"p{number}.pack"
        data, what = damaged(chance, whole, others)
        if chance.random() < 0.5:  # damaged after it was opened
            path.write_bytes(whole)
            assert len(packs.beside(path.with_suffix(".fragdb"))) == 1
        path.write_bytes(data)
        caplog.clear()
        found = []
        for _ in range(2):  # what is damaged is said once, so a second look says nothing
            for plan in sample.plans:
                kernel = cache.find(plan.digest, path.with_suffix(".fragdb"))
                assert kernel is None or code(kernel) == code(sample.kernels[plan.digest]), what
                found.append(kernel is not None)
        count = sum(found) // 2
        said = len(caplog.records)
        if what != "another file":
            assert count == len(sample.plans) or said, what
        assert said <= len(sample.plans), what
        assert all(str(path) in record.getMessage() for record in caplog.records)
        assert path.read_bytes() == data  # never written to
        path.unlink()


def answers(family: KernelFamily) -> object:
    """Return everything in a family's database: its record, its plans, and the bytes of every image."""
    listed = [family.record, family.parameters, sorted(map(str, family.configurations()))]
    for configuration in list(family.configurations()):
        plan = family.plan(arch="sm_90", **configuration)
        listed += [plan.as_dict(), plan.link_key, [family.database.read(image) for image in plan.images]]
        listed += [[family.database.read(image) for image in f.images] for f in plan.fragments]
    return listed


@pytest.mark.slow
def test_a_damaged_database_answers_the_same_or_fails(sample: Sample, tmp_path: Path) -> None:
    whole = sample.path.read_bytes()
    with FragmentDatabase(sample.path) as opened:
        expected = answers(KernelFamily("mini", opened))
        writer.write(tmp_path / "empty.fragdb", [], [], {})
        record = opened.families["mini"]
        writer.write(tmp_path / "bare.fragdb", [record], [], {})
    others = [(tmp_path / name).read_bytes() for name in ("empty.fragdb", "bare.fragdb")] + [b"", b"SQLite format 3\0"]
    chance, path = random.Random(3), tmp_path / "mini.fragdb"  # noqa: S311
    for _ in range(PLACES):
        data, what = damaged(chance, whole, others)
        path.write_bytes(data)
        try:
            with FragmentDatabase(path) as opened:
                given = answers(KernelFamily("mini", opened))
        except JitltoError as error:
            assert str(path) in str(error), what
            assert error.hint, what
        else:
            if what == "another file":  # a sound database of the same family, without fragments: its own answer
                assert given[:3] == [record, {}, []], what  # type: ignore[index]
            else:
                assert given == expected, what
