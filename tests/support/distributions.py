"""Distributions as an installer leaves them: metadata, and what the package holds."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path


def install(
    site: Path,
    name: str,
    version: str = "1.0",
    *,
    families: Mapping[str, str] | None = None,
    databases: Mapping[str, Path] | None = None,
    entry_points: str | None = None,
    editable: Path | None = None,
) -> Path:
    """Install a package of that name into a directory; returns the directory of its metadata.

    ``families`` are entry points, family → dotted path; ``databases`` are copied to where a dotted path says.
    Importing the package ends the process: nothing here is to do it.
    """
    spelled = name.replace("-", "_").replace(".", "_")
    metadata = site / f"{spelled}-{version}.dist-info"
    metadata.mkdir(parents=True)
    lines = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", "", "Name: of nothing"]
    (metadata / "METADATA").write_text("\n".join(lines))
    if entry_points is None and families is not None:
        listed = "".join(f"{family} = {value}\n" for family, value in families.items())
        entry_points = f"[console_scripts]\n{spelled} = {spelled}.cli:main\n\n[jitlto.fragments]\n{listed}"
    if entry_points is not None:
        (metadata / "entry_points.txt").write_text(entry_points)
    if editable is not None:
        (metadata / "direct_url.json").write_text(
            json.dumps({"url": editable.as_uri(), "dir_info": {"editable": True}})
        )
    for value, database in (databases or {}).items():
        target = site.joinpath(*value.split(".")).with_suffix(".fragdb")
        target.parent.mkdir(parents=True, exist_ok=True)
        (target.parent / "__init__.py").write_text("raise SystemExit('imported')\n")
        shutil.copyfile(database, target)
    return metadata
