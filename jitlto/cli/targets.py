"""Target architectures as commands take them."""

from __future__ import annotations

from collections.abc import Iterable

import click

from jitlto.cuda import toolkit
from jitlto.errors import JitltoError
from jitlto.model.versions import Architecture, knows, linkable


def parse_targets(texts: Iterable[str], option: str) -> list[Architecture]:
    """Targets that the nvJitLink at hand links for, each once, in the order given.

    Parameters
    ----------
    texts : iterable of str
        E.g. ``sm_90``.
    option : str
        What a message calls the option that they were given by.

    Raises
    ------
    click.UsageError
        If one is no architecture, or unknown to nvJitLink.
    """
    targets = []
    for text in texts:
        try:
            target = Architecture.parse(text)
        except JitltoError as error:
            raise click.UsageError(f"{option}: {error.what}; {error.hint}") from None
        linker = toolkit.nvjitlink_version()
        if not knows(linker, target):
            known = ", ".join(f"sm_{number}" for number in linkable(linker))
            raise click.UsageError(f"nvJitLink {linker} does not link for {target.sm}; it links for {known}")
        targets.append(target)
    return list(dict.fromkeys(targets))
