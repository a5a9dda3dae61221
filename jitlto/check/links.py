"""What a check links and compares: all that no earlier check has proved."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache

from jitlto.base.diagnostic import Diagnostic, Severity
from jitlto.base.errors import ArchitectureError, JitltoError, VersionError
from jitlto.base.mangling import demangle
from jitlto.base.versions import Architecture
from jitlto.build.causes import Found, found_in
from jitlto.build.proof import Proofs
from jitlto.cuda import nvjitlink
from jitlto.cuda.nvjitlink import InputKind
from jitlto.cuda.ptx import write_stub
from jitlto.link.parallel import run_parallel
from jitlto.plan.cache_entry import LinkedKernel
from jitlto.plan.enumeration import Kernel
from jitlto.plan.images import can_read, linked_kind, select_image
from jitlto.plan.plan import Plan, Request
from jitlto.plan.user_code.inputs import UserInput, from_binary
from jitlto.record.fragment import Fragment, ImageKind, Symbol
from jitlto.runtime.family import KernelFamily

#: Of a kernel that has no fast tier, or no link of cubins.
TIER = "link-tier"
_AT_ONCE = 32  # jobs of one call, so that there are calls for every core


@dataclass(frozen=True, slots=True)
class LinkJob:
    """One kernel to link for one architecture: as enumerated, and its plan."""

    kernel: Kernel
    plan: Plan

    @classmethod
    def make(cls, family: KernelFamily, kernel: Kernel, arch: Architecture, mode: str = "lto") -> LinkJob:
        """Plan a kernel of a family, with a stub of what callers supply."""
        options, place = family.record.link, (family.database, family.session)
        supplied = (_stub(kernel.user_symbols),) if kernel.user_symbols else ()
        request = Request(family.name, None, kernel.configuration)
        return cls(
            kernel, Plan(family.name, kernel.resolution, supplied, options, options, mode, arch, *place, request)
        )

    def link(self) -> list[str] | None:
        """Link the kernel as a process would, without a cache; return warnings, if there are any.

        Raises:
            LinkError: If it does not link, or cannot be what the first launches of a family with two tiers take.
        """
        plan = self.plan
        is_first = plan.mode == "sass" and plan.options.tiered and not plan.options.libraries
        cache = plan.services.kernel_cache
        linked: LinkedKernel = cache.linker(plan, is_first=True) if is_first else plan.link(use_cache=False)
        return linked.warnings or None

    def failure(self, error: JitltoError) -> Found:
        """Return what a failure of this job means: a note, if the kernel links from LTO-IR."""
        entry = self.plan.entry.key.text
        if self.plan.mode == "sass":
            if few := re.search(nvjitlink.FEW_REGISTERS, error.what):
                what = f"it may use {few[1]} registers and {demangle(few[2])} needs {few[3]}"
                return self._note(f"{entry} links from LTO-IR alone: {what}", f"set sass_registers = {few[1]}")
            if error.code == "link-variables":
                return self._note(f"{entry} begins with LTO: {error.what}", error.hint)
            error.what = f"its cubins: {error.what}"
        arch = self.plan.arch and self.plan.arch.sm
        return found_in(error, entry, self.kernel.configuration, arch)

    def _note(self, message: str, hint: str | None) -> Found:
        note = Diagnostic.at(None, message, TIER, Severity.NOTE, hint=hint)
        return found_in(note, self.plan.entry.key.text, self.kernel.configuration, self.plan.target.sm)

    def late(self) -> Found | None:
        """Return a note if the kernel begins with LTO although it is to have two tiers, and has a fitting cubin."""
        plan, entry = self.plan, self.plan.entry
        if not plan.options.tiered or not plan.services.config.tiered or plan.fast is not None:
            return None
        try:
            select_image(entry, ImageKind.SASS, plan.target, nvjitlink.version())
        except (VersionError, ArchitectureError):
            return None
        why = "a fragment has no cubin for it that means the same, or is of a family without two tiers"
        why = "it is linked with libraries" if plan.options.libraries else why
        return self._note(f"{entry.key} begins with LTO for {plan.target.sm}: {why}", None)

    def has_images(self) -> bool:
        """Return whether every fragment has an image that links in the mode of the plan."""
        try:
            return bool(self.plan.images)
        except (VersionError, ArchitectureError):
            return False


@cache
def _stub(symbols: tuple[Symbol, ...]) -> UserInput:
    """Return an input in the place of what callers supply."""
    return from_binary(write_stub(symbols).encode(), InputKind.PTX, "stub.ptx", {})


@dataclass(frozen=True)
class Work:
    """How a check does its jobs, and whom it tells; see :func:`jitlto.check.check.check`."""

    proofs: Proofs
    workers: int | None
    on_links: Callable[[int], object]
    on_link: Callable[[int], object]

    def do(
        self,
        call: Callable[[Sequence[LinkJob]], Sequence[object]],
        jobs: Sequence[LinkJob],
        of: str,
        together: Callable[[LinkJob], Hashable] = id,
    ) -> tuple[list[tuple[LinkJob, JitltoError]], int]:
        """Call a function for the jobs of which this has not been proved before.

        It returns None for each job of which all is well; that is then proved, and with any other value it is not. An
        error that it returns, or raises for all, is a failure. Jobs for which ``together`` is equal are done by one
        call, a number of them at a time.

        Returns:
            The jobs that raise an error, in order, and the number of those that were proved before.
        """
        keys = [self.proofs.plan_key(job.plan, of) for job in jobs]
        known = self.proofs.find(keys)
        left = [position for position, key in enumerate(keys) if key not in known]
        self.on_links(len(left))
        alike: dict[Hashable, list[int]] = defaultdict(list)
        for position in left:
            alike[together(jobs[position])].append(position)
        units = [each[n : n + _AT_ONCE] for each in alike.values() for n in range(0, len(each), _AT_ONCE)]
        failed: dict[int, JitltoError] = {}
        for _, unit, results in run_parallel(lambda unit: call([jobs[n] for n in unit]), units, self.workers):
            every = [results] * len(unit) if isinstance(results, JitltoError) else results
            for position, found in zip(unit, every, strict=True):
                self.on_link(position)
                if found is None:
                    self.proofs.add(keys[position])
                elif isinstance(found, JitltoError):
                    failed[position] = found
        return [(jobs[position], failed[position]) for position in sorted(failed)], len(jobs) - len(left)


def require_readable(fragments: Iterable[Fragment], where: str) -> None:
    """Check that the installed nvJitLink reads the LTO-IR of every fragment of a database, named ``where``.

    Raises:
        VersionError: If it cannot read one of the fragments.
        ToolchainError: If there is no nvJitLink.
    """
    linker = nvjitlink.version()
    for fragment in fragments:
        kind = linked_kind(fragment, ImageKind.LTOIR)
        if not any(can_read(image, linker) for image in fragment.images_of(kind)):
            try:
                select_image(fragment, kind, Architecture(75), linker)
            except VersionError as error:
                error.place = where
                raise nvjitlink.name_loaded(error, linker) from None
