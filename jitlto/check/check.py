"""The check of a database: every kernel plans, and links for the requested targets. Needs no GPU."""

import time
from collections.abc import Callable, Sequence

from msgspec import Struct

from jitlto.base import config
from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import DatabaseError
from jitlto.base.versions import Architecture
from jitlto.build.cache.cache import PATIENCE
from jitlto.build.causes import Found, group_causes
from jitlto.build.proof import MOST_KERNELS, FamilyProof, Proofs, prove
from jitlto.check.compare import choose_kernels, compare_family
from jitlto.check.links import LinkJob, Work, require_readable
from jitlto.cuda import nvjitlink
from jitlto.database import FragmentDatabase
from jitlto.link.sources import open_shared
from jitlto.record.fragment import ImageKind
from jitlto.runtime.family import KernelFamily

# Seconds in which proofs are written to shared stores, while something is written within the second.
_FINISH, _STALL = 2.0, 0.5


class FamilyCheck(Struct, frozen=True):
    """A family's kernels as planned, compared and linked."""

    family: str
    holds: bool
    fragments: int
    kernels: int
    completed_by_callers: int  # kernels that need callers' code; they are linked with a stub of it
    diagnostics: tuple[Diagnostic, ...]
    compared: int | None = None  # pairs of fragments whose inline functions were compared; None if none could be
    linked: int = 0  # kernels that were linked for each target: all, or of more than 10,000 a covering set
    known: int = 0  # links that an earlier check had made, so that they were not made again
    cubins: int = 0  # links of cubins that were made beside those of LTO-IR
    failed: int = 0  # links

    @property
    def failures(self) -> list[Diagnostic]:
        """What does not hold, each cause once."""
        return [each for each in self.diagnostics if each.severity is Severity.ERROR]

    @property
    def notes(self) -> list[Diagnostic]:
        """What else was found."""
        return [each for each in self.diagnostics if each.severity is Severity.NOTE]


class CheckResult(Struct, frozen=True):
    """The result for the database with this digest."""

    digest: str
    holds: bool
    families: tuple[FamilyCheck, ...]
    database: str
    archs: tuple[str, ...] = ()  # the targets of the links; empty if nothing was linked
    nvjitlink: str = ""  # its version
    seconds: float = 0.0  # that comparisons and links took


def check(
    database: FragmentDatabase,
    names: Sequence[str] = (),
    *,
    targets: Sequence[Architecture] = (),
    compare: bool = True,
    workers: int | None = None,
    on_links: Callable[[int], object] = lambda _: None,
    on_link: Callable[[int], object] = lambda _: None,
) -> CheckResult:
    """Prove that every kernel of a database plans, compare the inline functions of fragments, and link kernels.

    What an earlier check has proved, as the user's cache and shared stores tell, is not proved again.

    Args:
        names: The families; by default all.
        targets: The architectures to link for. Kernels of which every fragment has a cubin for the target are linked
            from these too. Of more kernels than a build plans each, those are linked in which every two fragments meet
            that meet in any.
        on_links, on_link: Called with the number of links or comparisons to make, and with the position of each.

    Raises:
        DatabaseError: If the database holds no family, or is one part of a build.
        RegistryError: If it does not hold one of the named families.
        VersionError: If the installed nvJitLink cannot read its fragments.
    """
    families = [KernelFamily(name, database) for name in dict.fromkeys(names or sorted(database.families))]
    if not families:
        where, hint = str(database.path), "build a family: jitlto build FAMILY -o DB"
        raise DatabaseError("the database holds no family", code="database-empty", where=where, hint=hint)
    if targets:
        fragments = [fragment for family in families for fragment in family.index.fragments]
        require_readable(fragments, str(database.path))
    proofs = list(prove(database, [family.name for family in families]).values())
    store = families[0].session.kernel_cache.store
    stores = open_shared(config.current(), PATIENCE) if store else None
    known = Proofs(store, stores)
    work, begin = Work(known, workers, on_links, on_link), time.perf_counter()
    checks = [
        _check_family(family, proof, compare, targets, work) for family, proof in zip(families, proofs, strict=True)
    ]
    seconds = round(time.perf_counter() - begin, 3)
    if stores is not None:
        stores.flush(_FINISH, _STALL)
    archs, linker = tuple(target.sm for target in targets), str(nvjitlink.version()) if targets else ""
    held, where = all(each.holds for each in checks), str(database.path)
    return CheckResult(database.digest, held, tuple(checks), where, archs, linker, seconds)


def _check_family(
    family: KernelFamily,
    proof: FamilyProof,
    compare: bool,
    targets: Sequence[Architecture],
    work: Work,
) -> FamilyCheck:
    failures, notes, pairs = compare_family(family, proof, work) if compare else ([], [], None)
    chosen = proof.kernels if len(proof.kernels) <= MOST_KERNELS else choose_kernels(proof.kernels)
    jobs = [LinkJob.make(family, kernel, target) for target in targets for kernel in chosen]
    late: list[Found] = []
    if targets and any(any(each.images_of(ImageKind.SASS)) for each in family.index.fragments):
        fast = (LinkJob.make(family, kernel, target, "sass") for target in targets for kernel in chosen)
        late = [*filter(None, (job.late() for job in jobs))]
        jobs += [job for job in fast if job.has_images()]
    # A kernel that is linked with a warning is linked again by the next check, which warns too.
    failed, known = work.do(lambda jobs: [job.link() for job in jobs], jobs, "link")
    links = [job.failure(error) for job, error in failed]
    broken = [each for each in links if each[0].severity is Severity.ERROR]
    slow = [each for each in links if each[0].severity is Severity.NOTE]
    failures, notes = [*proof.failures, *failures, *broken], [*proof.notes, *notes, *late, *slow]
    found = (*group_causes(failures), *(note for note, _ in notes))
    counts = proof.fragments, len(proof.kernels), sum(bool(kernel.user_symbols) for kernel in proof.kernels)
    linked = len(chosen) if targets else 0
    return FamilyCheck(
        family.name, not failures, *counts, found, pairs, linked, known, len(jobs) - linked * len(targets), len(broken)
    )
