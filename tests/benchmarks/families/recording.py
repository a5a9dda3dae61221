"""Launches that a front end makes, kept to be made again: by other forms of the kernel, and between two events."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from jitlto.runtime.family import KernelFamily


@dataclass(frozen=True)
class Call:
    """A launch: of which kernel, and all that it was given."""

    kernel: Any
    arguments: tuple[Any, ...]
    options: dict[str, Any]

    def by(self, kernel: Any) -> Callable[[], None]:
        """The same launch of another form of the kernel."""
        return lambda: kernel(*self.arguments, **self.options)

    def __call__(self) -> None:
        self.kernel(*self.arguments, **self.options)


class Recorder:
    """A launcher that remembers what it was called with."""

    def __init__(self, launcher: Any, calls: list[Call]) -> None:
        self._launcher = launcher
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def __call__(self, *arguments: Any, **options: Any) -> None:
        self._calls.append(Call(self._launcher, arguments, options))
        self._launcher(*arguments, **options)


class RecordingFamily(KernelFamily):
    """A family whose dispatchers' launches are remembered in ``calls``, while ``recording``."""

    def __init__(self, family: KernelFamily) -> None:
        super().__init__(family.name, family.database)
        self.calls: list[Call] = []
        self.recording = False

    def dispatcher(self, *names: str, **rest: Any) -> Any:
        """As of any family."""
        choose = super().dispatcher(*names, **rest)

        def chosen(*values: object) -> Any:
            launcher = choose(*values)
            return Recorder(launcher, self.calls) if self.recording else launcher

        return chosen
