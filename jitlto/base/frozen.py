"""Immutable values with named fields that are cheap to define, and objects that are not copied.

Defining a frozen dataclass takes 0.5 ms and a named tuple 0.1 ms or more, which adds up to most of the time of a cold
launch. So the classes on the way of a kernel found in the user's cache derive from :class:`Frozen`; all others are
plain frozen dataclasses. Type checkers see a frozen dataclass.
"""

from typing import Any, TypeVar, dataclass_transform

_Self = TypeVar("_Self")


@dataclass_transform(frozen_default=True)
class Frozen:
    """Base of immutable values: fields are the annotations of a class, defaults its attributes; compared by value."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        names = tuple(type(self).__annotations__)
        if len(args) < len(names):
            known = (n for n in names[len(args) :] if n in kwargs or hasattr(type(self), n))
            args += tuple(kwargs.pop(n) if n in kwargs else getattr(type(self), n) for n in known)
        if len(args) != len(names) or kwargs:
            raise TypeError(f"{type(self).__name__}() takes the fields {', '.join(names)}")
        self.__dict__.update(zip(names, args, strict=True))

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def as_dict(self) -> dict[str, Any]:
        """Return the values by field."""
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        return self.__dict__ == other.__dict__ if type(other) is type(self) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.__dict__.values()))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self.__dict__.items())})"


class Shared:
    """Base of objects that mean the same for as long as they live: a copy of one, deep or not, is the object itself."""

    __slots__ = ()

    def __copy__(self: _Self) -> _Self:
        return self

    def __deepcopy__(self: _Self, _memo: dict[int, Any]) -> _Self:
        return self
