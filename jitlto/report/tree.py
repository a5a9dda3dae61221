"""A family as a tree of text: its groups, what they call, and the values of their parameters."""

from collections.abc import Callable, Iterator

from jitlto.base.text import format_bytes, hang, pluralize, word
from jitlto.report.content import FamilyView, size


def draw(family: FamilyView, columns: int, emphasize: Callable[[str], str] = str) -> Iterator[str]:
    """Yield lines of at most ``columns`` characters, where there is something to break; names are emphasized."""
    yield f"{emphasize(family.name)}: {family.summary}"
    for group in family.groups:
        name, is_last = group.record.name, group is family.groups[-1]
        first, rule = ("└─ ", "   ") if is_last else ("├─ ", "│  ")
        held = f"{pluralize(len(group.by_cell), 'fragment')}, {format_bytes(size(group.by_cell.values()))}"
        text = f"{group.record.role}, {'supplied by callers' if group.record.supplied else held}"
        called = [
            to or f"{', '.join(names)} (of no fragment here)" for (by, to), names in family.calls.items() if by == name
        ]
        text += f"; calls {', '.join(called)}" if called else ""
        begin, *rest = hang(f"{first}{name}: ", text, columns, f"{rule}    ")
        yield begin.replace(name, emphasize(name), 1)
        yield from rest
        width = max(map(len, group.values), default=0)
        for parameter, values in group.values.items():
            begins = (f"{rule}  {each:<{width}}  " for each in (parameter, ""))
            yield from hang(next(begins), ", ".join(map(word, values)), columns, next(begins))
