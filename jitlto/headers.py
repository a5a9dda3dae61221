"""Virtual headers: the textual closure of a source's includes, as names and contents.

The compiler gets every header this way and never an include path: its output then depends on contents alone, and a
header that was not given is a compile error, never a stale one.
"""

from __future__ import annotations

import hashlib
import os.path
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# Blanks, comments and continued lines may stand between the words of a directive.
_GAP = rb"(?:[ \t]|/\*[^*\r\n]*\*/|\\\r?\n)*"
_INCLUDE = re.compile(
    rb"^(" + _GAP + rb"#" + _GAP + rb"(?:include|include_next|import)" + _GAP + rb""")([<"])([^>"\r\n]+)([>"])""", re.M
)
_HAS_INCLUDE = re.compile(rb"""\b(__has_include(?:_next)?[ \t]*\([ \t]*)([<"])([^>"\r\n]+)([>"])""")
# A macro that names an absolute path would make NVRTC read that file, of which nothing else here would know.
_ABSOLUTE = re.compile(rb"""^([ \t]*#[ \t]*define[ \t]+\w+[ \t]+)[<"]/[^>"\r\n]*[>"][ \t]*$""", re.M)


@dataclass(frozen=True)
class Source:
    """A source with all the headers that it can reach, by name and content: what a compiler process needs.

    Parameters
    ----------
    text : bytes
        The source; quoted includes are spelled with the names below.
    headers : mapping of str to bytes
        Name relative to the root where it was found → content.
    """

    text: bytes
    headers: Mapping[str, bytes]

    @cached_property
    def sha256(self) -> str:
        """Of text, names and contents: what the compiler reads."""
        digest = hashlib.sha256(hashlib.sha256(self.text).digest())
        for name in sorted(self.headers):
            digest.update(hashlib.sha256(name.encode()).digest())
            digest.update(hashlib.sha256(self.headers[name]).digest())
        return digest.hexdigest()


class HeaderSearch:
    """Finds headers under a list of roots, the first that has one wins; files are read once.

    Parameters
    ----------
    roots : sequence of Path
        Directories, in the order of ``-I``.
    overlay : mapping of str to bytes, optional
        Headers given by content, which win over every root.
    """

    def __init__(self, roots: Sequence[Path], overlay: Mapping[str, bytes] | None = None) -> None:
        self._roots = tuple(roots)
        self._overlay = dict(overlay or {})
        self._contents: dict[str, bytes | None] = dict(self._overlay)
        self._rewritten: dict[str, tuple[bytes, tuple[str, ...]]] = {}

    def find(self, name: str) -> bytes | None:
        """The content of the header ``name``, None if no root has it."""
        if name.startswith("/"):
            return None  # an absolute path says nothing on another machine
        if name not in self._contents:
            candidates = (os.path.join(root, name) for root in self._roots)  # noqa: PTH118 - as below
            # Unlike Path.is_file, os.path.isfile takes any text for an answer.
            path = next((path for path in candidates if os.path.isfile(path)), None)  # noqa: PTH113
            self._contents[name] = Path(path).read_bytes() if path else None
        return self._contents[name]

    def closure(self, text: bytes, extra: Iterable[str] = ()) -> Source:
        """The source with every header that its includes, and theirs, name in any branch.

        A superset of what the compiler will read. Headers that no root has are left out: the compiler says which of
        them it needed. Includes through a macro cannot be seen; name them in ``extra``.
        """
        rewritten, pending = self._rewrite(text, None)
        stack = [*pending, *extra]
        headers: dict[str, bytes] = {}
        while stack:
            name = stack.pop()
            if name in headers:
                continue
            if name not in self._rewritten:
                self._rewritten[name] = self._rewrite(self.find(name) or b"", os.path.dirname(name))  # noqa: PTH120 - a name, no path
            headers[name], included = self._rewritten[name]
            stack.extend(included)
        return Source(rewritten, headers)

    def reachable(self, text: bytes) -> frozenset[str]:
        """The names of the headers in :meth:`closure` of ``text``."""
        return frozenset(self.closure(text).headers)

    def _rewrite(self, text: bytes, directory: str | None) -> tuple[bytes, tuple[str, ...]]:
        # NVRTC looks a virtual header up by the very text of the include, not relative to the includer. So the text
        # is replaced by the name, which lengthens lines but moves none.
        found: list[str] = []

        def replace(match: re.Match[bytes]) -> bytes:
            written = match[3].decode("utf-8", "surrogateescape").strip()
            if written.startswith("/"):
                # NVRTC would read the file itself, which says nothing on another machine.
                return b"#error jitlto does not include absolute paths: " + match[3]
            beside = match[2] == b'"' and directory is not None
            candidates = ([f"{directory}/{written}".lstrip("/")] if beside else []) + [written]
            for name in map(os.path.normpath, candidates):
                if self.find(name) is not None:
                    found.append(name)
                    return b"".join((match[1], match[2], name.encode("utf-8", "surrogateescape"), match[4]))
            return match[0]

        def has(match: re.Match[bytes]) -> bytes:
            # A header that is not there stays as it is written, unless a file of this machine could answer.
            answer = replace(match)
            return answer if not answer.startswith(b"#error") else match[1] + b'"no absolute paths"'

        text = _ABSOLUTE.sub(lambda match: match[1] + b'"no absolute paths"', text)
        return _INCLUDE.sub(replace, _HAS_INCLUDE.sub(has, text)), tuple(found)
