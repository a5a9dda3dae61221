"""Immutable values with named fields that are cheap to define, and objects that are not copied.

Defining a frozen dataclass takes 0.5 ms and a named tuple 0.1 ms or more, which adds up to most of the time of a cold
launch. So the classes on the way of a kernel found in the user's cache derive from :class:`Frozen`; all others are
plain frozen dataclasses. Type checkers see a frozen dataclass.
"""

from __future__ import annotations

from typing import Any, TypeVar, dataclass_transform

_Self = TypeVar("_Self")


@dataclass_transform(frozen_default=True)
class Frozen:
    """Base of immutable values: fields are the annotations of a class, defaults its attributes; compared by value."""

    _fields: tuple[str, ...]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        inherited = getattr(cls, "_fields", ())
        cls._fields = inherited + tuple(n for n in cls.__annotations__ if n not in inherited)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fields = self._fields
        if len(args) < len(fields) or kwargs:
            args += tuple(kwargs.pop(name) if name in kwargs else self._default(name) for name in fields[len(args) :])
        if len(args) > len(fields) or kwargs:
            raise TypeError(f"{type(self).__name__}() takes the fields {', '.join(fields)}")
        self.__dict__.update(zip(fields, args, strict=True))

    @classmethod
    def _default(cls, name: str) -> Any:
        try:
            return getattr(cls, name)
        except AttributeError:
            raise TypeError(f"{cls.__name__}() is missing the field {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"{type(self).__name__} is immutable")

    def as_dict(self) -> dict[str, Any]:
        """Return the values by field."""
        return dict(self.__dict__)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.__dict__ == other.__dict__

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
