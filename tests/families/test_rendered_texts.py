"""What was rendered before is found while nothing that it was made from has changed, and in no other case."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.base.errors import RenderError
from jitlto.families import declaration, language, rendered_texts
from jitlto.families.language import Template
from jitlto.families.rendered_texts import ENTRIES, Batch, Rendered, RenderedTexts, TemplateText
from jitlto.families.templates import render_family
from tests.support.families import MINI, write_family

TEMPLATE = "{% include 'a/part.jinja' %} {% include ['first.jinja', 'second.jinja'] %} {{x}}"
FILES = {"a/part.jinja": "part", "second.jinja": "second", "t.jinja": TEMPLATE}


@pytest.fixture
def known(tmp_path: Path) -> RenderedTexts:
    return RenderedTexts(CacheDir(tmp_path / "cache", 1 << 30))


@pytest.fixture
def family(tmp_path: Path) -> Path:
    write(tmp_path / "family", **FILES)
    return tmp_path / "family"


def write(directory: Path, **files: str) -> None:
    for name, text in files.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)


class Request:
    """A template and combinations."""

    def __init__(self, directory: Path, *values: str, syntax: str = "jinja", entry: str = "{{x}} p") -> None:
        self.template = TemplateText(directory / "t.jinja", syntax, (entry,))
        self.combinations = [{"x": value} for value in values or ("8",)]

    def find(self, known: RenderedTexts) -> list[Rendered] | None:
        batch = known.find(self.template, self.combinations)
        return None if batch is None else list(batch.rendered)

    def render(self, known: RenderedTexts) -> list[Rendered]:
        template = Template(self.template)
        rendered = [template.render(combination) for combination in self.combinations]
        known.put(self.template, self.combinations, Batch(rendered, template.read))
        return rendered


def test_what_was_rendered_is_found(known: RenderedTexts, family: Path) -> None:
    wanted = Request(family, "1", "2")
    assert wanted.find(known) is None
    made = wanted.render(known)
    found = wanted.find(known)
    assert found is not None
    assert [(a.text, a.params, a.digest) for a in found] == [(a.text, a.params, a.digest) for a in made]
    assert found[1].text == "part second 2"


def test_the_same_files_elsewhere_are_the_same(known: RenderedTexts, family: Path, tmp_path: Path) -> None:
    Request(family).render(known)
    write(tmp_path / "elsewhere", **FILES)
    assert Request(tmp_path / "elsewhere").find(known) is not None


@pytest.mark.parametrize(
    "change",
    [
        {"t.jinja": f"{TEMPLATE} "},
        {"a/part.jinja": "another"},
        {"second.jinja": "another"},
        {"first.jinja": "earlier"},
    ],
    ids=lambda change: min(change),
)
def test_a_file_that_changes_or_appears_earlier_is_noticed(
    known: RenderedTexts, family: Path, change: dict[str, str]
) -> None:
    before = Request(family).render(known)[0].text
    write(family, **change)
    assert Request(family).find(known) is None
    after = Request(family).render(known)[0].text
    assert after != before
    found = Request(family).find(known)
    assert found is not None
    assert found[0].text == after


def test_other_combinations_entries_and_syntaxes_are_others(known: RenderedTexts, family: Path) -> None:
    Request(family, "1").render(known)
    for wanted in (Request(family, "2"), Request(family, "1", "2"), Request(family, "1", entry="{{x}} q")):
        assert wanted.find(known) is None
    assert Request(family, "1", syntax="cmake").find(known) is None


def test_a_template_that_is_no_file_any_more_is_rendered_again(known: RenderedTexts, family: Path) -> None:
    Request(family).render(known)
    (family / "a/part.jinja").unlink()
    assert Request(family).find(known) is None
    (family / "a/part.jinja").mkdir()
    assert Request(family).find(known) is None


def test_a_batch_with_an_error_is_not_stored(known: RenderedTexts, tmp_path: Path) -> None:
    path = write_family(tmp_path / "mini", MINI | {"op.cu.jinja": "{{ expr // 2 }}"})
    loaded = declaration.load_family(path)
    errors: list[RenderError] = []
    for _ in range(2):
        list(render_family(loaded, known=known, on_error=lambda _, error: errors.append(error)))
    assert len(errors) == 2 * 4


def test_a_cmake_template_is_stored_too(known: RenderedTexts, family: Path) -> None:
    write(family, **{"t.jinja": "@x@;"})
    wanted = Request(family, "1", "2", syntax="cmake", entry="@x@ p")
    wanted.render(known)
    found = wanted.find(known)
    assert found is not None
    assert [answer.text for answer in found] == ["1;", "2;"]


def test_another_language_renders_again(known: RenderedTexts, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Request(family).render(known)
    monkeypatch.setattr(rendered_texts, "_language", lambda: "another")
    assert Request(family).find(known) is None


def test_a_damaged_entry_is_none(known: RenderedTexts, family: Path, tmp_path: Path) -> None:
    Request(family).render(known)
    (path,) = (path for path in (tmp_path / "cache" / ENTRIES).rglob("*") if path.is_file())
    store = CacheDir(tmp_path / "cache", 1 << 30)
    for damaged in (b"", b"{}", b'{"read": {}, "answers": []}', b"\xff"):
        store.put(ENTRIES, path.parent.name + path.name, damaged)
        assert Request(family).find(known) is None


def test_names_that_are_not_utf8_are_not_stored(known: RenderedTexts, family: Path) -> None:
    write(family, **{"t.jinja": "{% include 'caf\\udce9' ignore missing %}"})
    Request(family).render(known)
    assert Request(family).find(known) is None


def test_without_a_cache_nothing_is_stored(family: Path) -> None:
    nothing = RenderedTexts(None)
    Request(family).render(nothing)
    assert Request(family).find(nothing) is None


def test_a_family_is_rendered_without_jinja(
    known: RenderedTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = declaration.load_family(write_family(tmp_path / "mini", MINI))
    first = list(render_family(loaded, known=known))
    monkeypatch.setattr(language, "Template", None)
    assert list(render_family(loaded, known=known)) == first
