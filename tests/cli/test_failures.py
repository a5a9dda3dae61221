"""Failures of a build as they happen: the first of each cause at once, all of them where the build is ended."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NoReturn

import pytest

from jitlto.base.errors import CompileError
from jitlto.build import pipeline
from jitlto.build.rendered_families import RenderedFamilies
from jitlto.cli.failures import FailureLog
from jitlto.families import declaration
from tests.support.commands import jitlto
from tests.support.families import MINI, write_family


def error(key: object, text: str) -> CompileError:
    return CompileError("does not compile", where=str(key), log=f"{key}.cu(1): error: {text}")


@pytest.fixture
def rendered(tmp_path: Path) -> RenderedFamilies:
    return RenderedFamilies([declaration.load_family(write_family(tmp_path, MINI))])


def test_the_first_failure_of_a_cause_is_said_at_once(rendered: RenderedFamilies) -> None:
    said: list[str] = []
    log = FailureLog(rendered, said.append)
    assert log.report() is None
    first, second, third, *_ = rendered.keys
    log.add(first, error(first, "no float"))
    assert len(said) == 1
    assert str(first) in said[0] and "[compile]" in said[0]
    log.add(second, error(second, "no double"))  # the same in another type
    log.add(third, error(third, "something else"))
    assert len(said) == 2
    report = log.report()
    assert report is not None
    assert [len(cause.failures) for cause in report.failures] == [2, 1]


def test_what_cannot_be_rendered_is_said_before_the_first_compile(tmp_path: Path) -> None:
    path = write_family(tmp_path, MINI | {"op.cu.jinja": "{{ nobody }}"})
    done = jitlto("build", path, "-o", tmp_path / "a.fragdb", "--no-cache", "-k")
    assert done.returncode == 1
    assert done.stderr.count("[render-undefined]") == 2  # at once, and among the causes at the end


def test_a_build_that_is_ended_names_what_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_family(tmp_path / "family", MINI)

    def ended(rendered: RenderedFamilies, *_: Any, observer: Any, **__: Any) -> NoReturn:
        observer.started(rendered.keys)
        for key in rendered.keys[:2]:
            observer.failed(key, error(key, "no such thing"))
        raise KeyboardInterrupt

    monkeypatch.setattr(pipeline, "build", ended)
    done = jitlto("build", path, "-o", tmp_path / "x.fragdb", "-k")
    assert done.returncode == 130
    assert "[build-failed-fragments]" not in done.stdout
    assert "2 of 6 fragments" in done.stderr and "[build-failed-fragments]" in done.stderr
    assert done.stderr.index("error: mini/kern") < done.stderr.index("2 of 6 fragments")
