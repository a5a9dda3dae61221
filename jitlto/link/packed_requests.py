"""Look-ups in packs: what a process needs to take a kernel from a pack without a database, a planner or nvJitLink.

A pack holds, beside its kernels and under the SHA-256 of all that they depend on:

- the contents of the database, under its digest;
- the parameters that requests name, under their :class:`Scope`;
- the kernel that answers a request, under its scope and the values of these parameters.

So a pack that was made for another database, architecture or nvJitLink, or by another jitlto, answers nothing, and what
it does not answer is planned. A request may name more parameters than a look-up: the kernel's own, with their values.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from jitlto.base.frozen import Frozen
from jitlto.cuda.nvjitlink_file import installed_release
from jitlto.link import packs
from jitlto.link.lookup_cache import Contents, decode_contents, hash_key
from jitlto.link.packs import LOOKUP, Pack
from jitlto.plan.cache_entry import Chosen

_CONTENTS, _NAMED, _CHOSEN = "contents", "named", "chosen"


class Scope(Frozen):
    """All that decides about a kernel beside parameters.

    Args:
        database: The database's digest.
        family, link_mode, link_options: As requested.
        entry: The entrypoint's group; None if the configuration decides between several.
        capability: The device's compute capability.
        nvjitlink: The release of nvJitLink.
    """

    database: str
    family: str
    entry: str | None
    link_mode: str
    link_options: Mapping[str, object]
    capability: tuple[int, int]
    nvjitlink: str

    def key(self, kind: str, *more: object) -> str:
        """Return the key of a look-up.

        Raises:
            TypeError, ValueError, RecursionError: If a link option cannot be part of one.
        """
        return hash_key(kind, *self.as_dict().values(), *more)


class Answer(Frozen):
    """The kernel that answers the requests of a scope.

    Args:
        scope: The scope.
        named: The parameters that requests have to name, with their values.
        configuration: The parameters on which the kernel depends, with their values.
        chosen: The kernel.
    """

    scope: Scope
    named: Mapping[str, str]
    configuration: Mapping[str, str]
    chosen: Chosen


def find_contents(database: Path, digest: str) -> Contents | None:
    """Return the contents of the database with a digest from the packs beside it; None if none has them."""
    for payload in _payloads(packs.beside(database), hash_key(_CONTENTS, digest)):
        contents = decode_contents(digest, payload)
        if contents is not None:
            return contents
    return None


def find_chosen(database: Path, scope: Scope, configuration: Mapping[str, str]) -> Chosen | None:
    """Return the kernel that answers a request from the packs beside a database; None if none has the answer.

    Args:
        database: The path of the database.
        scope: The request.
        configuration: Its parameters, spelled as by the family.
    """
    try:
        beside, key = packs.beside(database), scope.key(_NAMED)
        for payload in _payloads(beside, key):
            for names in json.loads(payload):
                if configuration.keys() >= set(names):
                    named = {name: configuration[name] for name in names}
                    for answer in _payloads(beside, scope.key(_CHOSEN, named)):
                        *chosen, known = json.loads(answer)
                        if configuration.items() <= {**known, **named}.items():
                            return Chosen.from_list(*chosen)
    except (ValueError, TypeError, AttributeError, RecursionError):
        pass  # a link option that cannot be part of a key, or a pack that jitlto has not written
    return None


def _payloads(beside: Iterable[Pack], key: str) -> Iterator[bytes]:
    for pack in beside:
        payload = pack.get(key, LOOKUP)
        if payload is not None:
            yield payload


def installed_nvjitlink() -> str | None:
    """Return the release of nvJitLink that a new process would load; None if that cannot be told without loading it."""
    return installed_release(os.environ.get("CONDA_PREFIX", ""))


def encode(contents: Iterable[Contents], answers: Iterable[Answer]) -> dict[str, bytes]:
    """Return the look-ups of a pack by key, for :func:`~jitlto.link.packs.write`."""
    lookups = {hash_key(_CONTENTS, each.digest): each.to_json() for each in contents}
    named: dict[str, set[tuple[str, ...]]] = {}
    for answer in answers:
        named.setdefault(answer.scope.key(_NAMED), set()).add(tuple(sorted(answer.named)))
        content = [*answer.chosen.to_list(), answer.configuration]
        lookups[answer.scope.key(_CHOSEN, answer.named)] = json.dumps(content, sort_keys=True).encode()
    # Those with few parameters first, because they answer most requests.
    ordered = {key: sorted(names, key=lambda each: (len(each), each)) for key, names in named.items()}
    return lookups | {key: json.dumps(names).encode() for key, names in ordered.items()}
