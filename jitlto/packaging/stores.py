"""The shared stores of a build or check: those of the environment, else those of ``[tool.jitlto]``.

Whoever is named in ``store_signers`` can put code into a build. A project that one only looks at must not decide that
for other projects: what comes from stores that it configures is kept in a directory of its own, which is known by what
it has configured.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from jitlto.base import config, files
from jitlto.base.cache_dir import CacheDir, open_cache_dir
from jitlto.base.config import Config
from jitlto.base.errors import ProjectError
from jitlto.base.toml_reader import TomlTable
from jitlto.base.user_caches import PROJECTS
from jitlto.build.cache.cache import Cache
from jitlto.families.declaration import CompilerTable

if TYPE_CHECKING:  # not imported at run time, so that builds without a store do not load it
    from jitlto.stores.shared import SharedStores


class StoreTable(CompilerTable, kw_only=True):
    """The keys of ``[tool.jitlto]`` about compilers and shared stores."""

    store: tuple[str, ...] = ()
    store_trust: Literal["signed", "checksum"] | None = None
    store_signers: str | None = None


@dataclass(frozen=True, slots=True)
class ProjectStores:
    """The stores of a project's builds.

    Args:
        stores: None if none are configured.
        project: SHA-256 of what the project configures; empty if it is all from the environment.
    """

    stores: SharedStores | None = None
    project: str = ""

    def open_directory(self, name: str, size: int, directory: Path | None = None) -> CacheDir | None:
        """Open the user's cache directory of this name, or the project's own.

        Args:
            size: Its bound in bytes.
            directory: The cache directory, by default ``JITLTO_CACHE_DIR``.
        """
        top = Path(directory or config.current().cache_dir)
        return open_cache_dir(top / PROJECTS / self.project / name if self.project else top / name, size)

    def open_cache(self, directory: Path | None = None) -> Cache | None:
        """Open the build cache over these stores; return None if its directory cannot be used."""
        store = self.open_directory("build", config.current().build_cache_size, directory)
        if store is None:
            return None
        cache = Cache(store, self.stores)
        if self.stores is not None and cache.is_empty:  # it has nothing yet: the stores will be asked soon
            self.stores.open_soon()
        return cache


def apply_project(table: TomlTable | None, settings: Config) -> Config:
    """Return settings with the stores, and what is trusted in them, that a project configures and they do not.

    Raises:
        ProjectError: If the table's keys about stores are invalid.
        StoreError: If an address of a store is invalid.
    """
    return settings if table is None else Config(**{**settings.as_dict(), **_from_project(table, settings)})


def find_stores(table: TomlTable | None) -> ProjectStores:
    """Return the stores of the environment, else of ``[tool.jitlto]``, without opening them.

    Args:
        table: The table of the project; None without a project.

    Raises:
        ProjectError: If the table's keys about stores are invalid.
        StoreError: If an address of a store is invalid.
    """
    settings = config.current()
    taken = {} if table is None else _from_project(table, settings)
    values = {**settings.as_dict(), **taken}
    if not values["store"]:
        return ProjectStores()
    from jitlto.stores.shared import SharedStores  # threads and an extra, for those who have a store

    return ProjectStores(SharedStores.from_config(Config(**values)), _identify(taken))


def _from_project(table: TomlTable, settings: Config) -> dict[str, object]:
    """Return what the project configures and the environment does not."""
    keys = "store", "store_trust", "store_signers"
    declared = TomlTable(
        table.path, ProjectError, {key: table.values[key] for key in keys if key in table}, table.name
    ).decode(StoreTable)
    if not (declared.store or settings.store):
        return {}
    taken: dict[str, object] = {}
    if declared.store and not settings.store:
        from jitlto.stores.address import parse_addresses

        where = f"{table.path} [{table.name}] store"
        taken["store"] = " ".join(str(each) for text in declared.store for each in parse_addresses(text, where))
    if declared.store_trust and not settings.store_trust:
        taken["store_trust"] = declared.store_trust
    if declared.store_signers and not settings.store_signers:
        taken["store_signers"] = table.path.parent / declared.store_signers
    return taken


def _identify(taken: dict[str, object]) -> str:
    if not taken:
        return ""
    signers = taken.get("store_signers")
    values = {key: str(value) for key, value in taken.items() if key != "store_signers"}
    if isinstance(signers, Path):
        try:
            values["signers"] = hashlib.sha256(files.read(signers)).hexdigest()
        except OSError:
            values["signers"] = ""  # the stores say why
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()
