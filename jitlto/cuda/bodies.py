"""The definitions of a PTX module, comparable between modules in which they stand in another order.

Labels and call prototypes are numbered by appearance, and names that are internal to a module are numbered where
another input of the link has the same ones; both depend on what else the module holds.
"""

import hashlib
import re
from collections.abc import Collection

from jitlto.cuda.ptx import Module
from jitlto.record.fragment import SymbolKind

_LABELS = ("$L__", "__local_depot", "prototype_")
_WORD = re.compile(r"[\w$%.]+|[^\w$%.\s]+")
_PLACE = re.compile(r"(%SPL?|__local_depot\d+)(?:\+\d+|,\s*\d+|\[\d+\])")  # in a frame, or its size


class Bodies:
    """The definitions of one module.

    Internal definitions with the same content count as one, as the copies of a static function or of a literal do that
    come from several inputs of a link. A variable that starts as zero does not: each copy is a state of its own.

    Args:
        module: As nvJitLink or a compiler writes it.
        frames: Whether the places of local variables in a function's frame count.
        named: The internal definitions that count by their names alone.
    """

    def __init__(self, module: Module, *, frames: bool = True, named: Collection[str] = ()) -> None:
        self._defined = {d.name: d for d in module.declarations.values() if d.defined}
        texts = {name: d.text if frames else _PLACE.sub(r"\1", d.text) for name, d in self._defined.items()}
        self._words = {name: _words(name, text) for name, text in texts.items()}
        self._classes = self._merge_copies({n for n, d in self._defined.items() if not d.linkage}.difference(named))

    def hash(self, name: str) -> str:
        """Return the SHA-256 of a definition, with the internal ones that it reaches."""
        numbers = {self._classes.get(name, name): 0}
        pending, parts = [name], []
        for current in pending:
            words = list(self._words[current])
            for position, word in enumerate(words):
                inner = self._classes.get(word)
                if inner is not None:
                    if inner not in numbers:
                        numbers[inner] = len(numbers)
                        pending.append(word)
                    words[position] = f"$I{numbers[inner]}"
            parts += [self._defined[current].layout, " ".join(words)]
        return hashlib.sha256("\n".join(parts).encode()).hexdigest()

    def _merge_copies(self, names: Collection[str]) -> dict[str, object]:
        """Return the class of each internal definition: the coarsest classes whose members do the same."""
        internal = {name: d for name, d in self._defined.items() if name in names}
        links = {name: [word for word in self._words[name] if word in internal] for name in internal}
        classes: dict[str, object] = {
            name: name
            if d.layout.startswith("global ") and not d.text
            else (d.layout, tuple("" if word in internal else word for word in self._words[name]))
            for name, d in internal.items()
        }
        count = 0
        while len(set(classes.values())) > count:
            count = len(set(classes.values()))
            refined = {name: (classes[name], *(classes[word] for word in links[name])) for name in internal}
            numbers: dict[object, int] = {}
            classes = {name: numbers.setdefault(refined[name], len(numbers)) for name in internal}
        return classes


def _words(name: str, text: str) -> list[str]:
    """Split a definition, with its own name and labels replaced."""
    parameter = f"{name}_param_"
    words = _WORD.findall(text)
    labels = {
        word
        for before, word, after in zip([";", *words], words, words[1:], strict=False)
        if after[0] == ":" and before[-1] in ";{}" and not after.startswith("::")
    }
    numbers: dict[str, str] = {}
    for position, word in enumerate(words):
        if word == name or word.startswith(parameter):
            words[position] = "self" + word[len(name) :]
        elif word in labels or word.startswith(_LABELS):
            words[position] = numbers.setdefault(word, f"$L{len(numbers)}")
    return words


def hash_weak(module: Module) -> tuple[tuple[str, str], ...]:
    """Return the names of a module's weak functions and variables with the hashes of their definitions, sorted."""
    names = [s.name for s in module.provides if s.weak and s.kind is not SymbolKind.KERNEL]
    bodies = Bodies(module) if names else None
    return tuple((name, bodies.hash(name)) for name in names) if bodies else ()
