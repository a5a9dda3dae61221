"""Comparing layouts: the last net under interfaces, where no C++ type is left to compare."""

from __future__ import annotations

from jitlto.model.fragment import Symbol, SymbolKind


def compatible(required: Symbol, provided: Symbol) -> bool:
    """Whether a definition can stand for a declaration, as far as sizes and alignments tell.

    Layouts say how many bytes pass and how they are aligned, and nothing of their meaning: ``int`` and ``float`` look
    alike. A declaration may leave an array's size open and ask for less alignment than the definition has.
    """
    if (required.kind is SymbolKind.VARIABLE) != (provided.kind is SymbolKind.VARIABLE):
        return False
    if required.kind is not SymbolKind.VARIABLE:
        return required.layout == provided.layout
    (space, size, alignment), (its_space, its_size, its_alignment) = map(_variable, (required.layout, provided.layout))
    return space == its_space and size in ("?", its_size) and int(alignment) <= int(its_alignment)


def _variable(layout: str) -> tuple[str, str, str]:
    space, _, rest = layout.partition(" ")
    size, _, alignment = rest.partition("@")
    return space, size, alignment
