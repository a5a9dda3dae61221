"""Rendered texts in the build cache, by the contents of what they were made from, so that they need no process.

The key covers combinations, the language of templates and the template itself. An entry names the files that were read
with it and their SHA-256, and those that were looked for in vain. Only what was rendered without an error is stored.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os.path
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from jitlto.base.cache_dir import CacheDir
from jitlto.families.rendering.process import Answer, Request
from jitlto.families.rendering.template_files import OutsideError, read_template

#: The folder of the entries in the cache directory.
ENTRIES = "rendered"


class _Entry(msgspec.Struct, frozen=True):
    read: dict[str, str | None]  # SHA-256 by the name beside the template, None for a file that was not there
    answers: list[Answer]


class RenderedTexts:
    """Rendered texts.

    Args:
        store: The build cache's directory; None to find and store nothing.
    """

    def __init__(self, store: CacheDir | None) -> None:
        self._store = store

    def find(self, request: Request) -> list[Answer] | None:
        """Return the answers to a request, if nothing that they were made from has changed."""
        if self._store is None or (data := self._store.get(ENTRIES, _key(request))) is None:
            return None
        try:
            entry = msgspec.json.decode(data, type=_Entry)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return None
        if len(entry.answers) != len(request["combinations"]):
            return None
        return entry.answers if all(_sha256(name, request) == sha for name, sha in entry.read.items()) else None

    def put(self, request: Request, answers: Sequence[Answer]) -> None:
        """Store the answers to a request, unless one of them is an error."""
        if self._store is None or len(answers) < len(request["combinations"]) or any("what" in a for a in answers):
            return
        try:
            data = msgspec.json.encode(_Entry(answers[-1]["read"], [_without_files(answer) for answer in answers]))
        except UnicodeEncodeError:  # in the name of a file
            return
        self._store.put(ENTRIES, _key(request), data)


def _without_files(answer: Answer) -> Answer:
    return {"text": answer["text"], "params": answer["params"], "digest": answer["digest"], "used": answer["used"]}


def _sha256(name: str, request: Request) -> str | None:
    """Return the SHA-256 of a template as it is now; None if it is not there or would not be read."""
    path = Path(request["template"]).parent / name
    try:
        return hashlib.sha256(read_template(path, request["folders"])).hexdigest() if os.path.isfile(path) else None  # noqa: PTH113
    except (OutsideError, OSError):
        return ""


def _key(request: Request) -> str:
    name = os.path.basename(request["template"])  # noqa: PTH119 - a text
    made_from = [_language(), name, _sha256(name, request), request["syntax"], request["entries"]]
    return hashlib.sha256(json.dumps([*made_from, request["combinations"]]).encode()).hexdigest()


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
