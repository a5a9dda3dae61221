"""Rendered texts in the build cache, by the contents of what they were made from.

The key covers combinations, the language of templates and the template itself. An entry names the files that were read
with it and their SHA-256, and those that were looked for in vain. Only what was rendered without an error is stored.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import msgspec

from jitlto.base.cache_dir import CacheDir

#: The folder of the entries in the cache directory.
ENTRIES = "rendered"


@dataclass(frozen=True, slots=True)
class TemplateText:
    """A template to render: its file, and the entries of ``params`` beside it."""

    path: Path
    syntax: str  # jinja or cmake
    params: tuple[str, ...]


class Rendered(msgspec.Struct, frozen=True):
    """What a combination gives: the text, ``params``, and the digest of the text without comments and blanks."""

    text: str
    params: tuple[str, ...]
    digest: str


class Batch(msgspec.Struct, frozen=True):
    """What several combinations of a template give.

    Args:
        rendered: That of each.
        read: SHA-256 of files by their names beside the template; None for one that was not there.
    """

    rendered: Sequence[Rendered]
    read: Mapping[str, str | None]


class RenderedTexts:
    """Rendered texts.

    Args:
        store: The build cache's directory; None to find and store nothing.
    """

    def __init__(self, store: CacheDir | None) -> None:
        self._store = store

    def find(self, template: TemplateText, combinations: Sequence[Mapping[str, str]]) -> Batch | None:
        """Return what combinations give, if nothing that it was made from has changed."""
        data = self._store.get(ENTRIES, _key(template, combinations)) if self._store else None
        try:
            batch = msgspec.json.decode(data or b"", type=Batch)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if len(batch.rendered) != len(combinations):
            return None
        unchanged = all(_sha256(template.path.parent / name) == sha for name, sha in batch.read.items())
        return batch if unchanged else None

    def put(self, template: TemplateText, combinations: Sequence[Mapping[str, str]], batch: Batch) -> None:
        """Store what combinations give."""
        if self._store is not None:
            try:
                self._store.put(ENTRIES, _key(template, combinations), msgspec.json.encode(batch))
            except UnicodeEncodeError:  # in the name of a file
                return


def _sha256(path: Path) -> str | None:
    """Return the SHA-256 of a template as it is now; None if it is not there."""
    try:
        return hashlib.sha256(path.read_text("utf-8-sig").encode()).hexdigest()
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError):
        return ""


def _key(template: TemplateText, combinations: Sequence[Mapping[str, str]]) -> str:
    path = template.path
    made_from = [_language(), path.name, _sha256(path), template.syntax, template.params, combinations]
    return hashlib.sha256(json.dumps(made_from).encode()).hexdigest()


@functools.cache
def _language() -> str:
    """Return a digest of all code that renders."""
    digest = hashlib.sha256()
    for package in (__package__, "jinja2", "markupsafe"):
        spec = find_spec(package)
        for directory in (spec and spec.submodule_search_locations) or ():
            for path in sorted(Path(directory).glob("*.py")):
                digest.update(f"{path.name}\0".encode() + path.read_bytes())
    return digest.hexdigest()
