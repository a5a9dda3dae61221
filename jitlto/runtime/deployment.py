"""What a deployment needs from a store: databases, packs and linked kernels, enumerated as ``jitlto warm`` does."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from jitlto.base import files
from jitlto.base.errors import JitltoError, RegistryError
from jitlto.base.versions import Architecture
from jitlto.database import FragmentDatabase
from jitlto.link.packs import Pack
from jitlto.plan.cache_entry import LinkKey
from jitlto.runtime.family import KernelFamily, family, load
from jitlto.runtime.warming import WarmJob, family_jobs, recorded_jobs
from jitlto.stores import artifacts, manifest
from jitlto.stores.lock_file import LockFile, is_lock_file

PACK = ".pack"


def enumerate_needs(
    targets: Sequence[tuple[Path, str | None]], archs: Sequence[Architecture] = (), name: str | None = None
) -> LockFile:
    """Return what a deployment of some files needs.

    Args:
        targets: Databases, each with the name of a family in it to confine the kernels to; packs; files of recorded
            plans; lock files.
        archs: Architectures: for these, all kernels of the databases are needed that no caller's code completes, and
            of packs and recorded plans only those for them. By default those of packs and of recorded plans.
        name: By default made from the first target and the content, so that no other lock file has it.

    Raises:
        JitltoError: If a file cannot be read, or a kernel cannot be planned.
    """
    found = [LockFile.read(path) for path, _ in targets if _holds_lock(path)]
    rest = [(path, of) for path, of in targets if not _holds_lock(path)]
    databases = [(path, of) for path, of in rest if files.is_database(path)]
    for path, of in rest:
        about: dict[str, str] = {}
        kernels: dict[str, str] = {}
        if (path, of) in databases:
            about = _files_of(path)
            for pack in files.beside(path, PACK):
                kernels |= _packed_kernels(pack, archs)
            kernels |= _family_kernels(path, of, archs)
        else:
            about = {manifest.sha256(path): path.name}
            kernels = _packed_kernels(path, archs) if path.suffix == PACK else _recorded(path, databases, archs)
        found.append(LockFile("part", about, kernels))
    made = LockFile.merged(name or "part", found)
    return made if name else LockFile(_default_name(targets[0][0], made), made.artifacts, made.kernels)


def _default_name(path: Path, content: LockFile) -> str:
    stem = "".join(
        letter if letter.isascii() and (letter.isalnum() or letter in "._-") else "-" for letter in path.stem
    )
    return f"{stem.lstrip('._-')[:60] or 'lock'}-{hashlib.sha256(content.encode()).hexdigest()[:12]}"


def _holds_lock(path: Path) -> bool:
    try:
        return is_lock_file(path)
    except OSError as error:
        what, hint = f"cannot be read: {error.strerror or error}", "check the path"
        raise JitltoError(what, code="jitlto-unreadable-file", where=str(path), hint=hint) from error


def _files_of(database: Path) -> dict[str, str]:
    address, digests = artifacts.index_of(database)
    return {digest: name for name, digest in digests.items()} | (
        {address: f"{database.name} and its packs"} if len(digests) > 1 else {}
    )


def _packed_kernels(path: Path, archs: Collection[Architecture]) -> dict[str, str]:
    try:
        pack = Pack(path)
    except (OSError, ValueError) as error:
        what, hint = f"is not a pack that can be read: {error}", "jitlto verify PACK tells more"
        raise JitltoError(what, code="jitlto-damaged-pack", where=str(path), hint=hint) from error
    wanted = {arch.sm for arch in archs}
    kernels = {}
    for digest in pack.digests:
        payload = pack.find(digest)
        key = LinkKey.from_entry(payload) if payload else None
        if key is not None and (not wanted or key.inputs["arch"] in wanted):
            kernels[digest] = _describe(key)
    return kernels


def _family_kernels(path: Path, only: str | None, archs: Sequence[Architecture]) -> dict[str, str]:
    if not archs:
        return {}
    with FragmentDatabase(path) as database:
        names = [only] if only else list(database.families)
    # Families that others share have no kernels of their own.
    loaded = [held for held in (load(name, path) for name in names) if held.entrypoints]
    return _planned(job for held in loaded for job in family_jobs(held, (), archs).jobs)


def _recorded(
    path: Path, databases: Iterable[tuple[Path, str | None]], archs: Sequence[Architecture]
) -> dict[str, str]:
    def find(name: str) -> KernelFamily:
        for database, _ in databases:
            with FragmentDatabase(database) as opened:
                if name in opened.families:
                    return load(name, database)
        try:
            return family(name)
        except RegistryError as error:
            error.hint = f"name the database too: jitlto lock DB {path.name}"
            raise

    return _planned(recorded_jobs(path, find, archs).jobs)


def _planned(jobs: Iterable[WarmJob]) -> dict[str, str]:
    keys = (job.plan().link_key for job in jobs)
    return {key.digest: _describe(key) for key in keys}


def _describe(key: LinkKey) -> str:
    values = "".join(f" {name}={value}" for name, value in key.configuration)
    return f"{key.kernel.partition('[')[0]}{values} for {key.inputs['arch']}"
