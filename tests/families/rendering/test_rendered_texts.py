"""What was rendered before is found while nothing that it was made from has changed, and in no other case."""

from __future__ import annotations

from pathlib import Path

import pytest

from jitlto.base.cache_dir import CacheDir
from jitlto.families import declaration
from jitlto.families.rendering import process, rendered_texts
from jitlto.families.rendering.process import Answer, Request
from jitlto.families.rendering.rendered_texts import ENTRIES, RenderedTexts
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


def request(directory: Path, *values: str, syntax: str = "jinja", entry: str = "{{x}} p") -> Request:
    return {
        "template": str(directory / "t.jinja"), "syntax": syntax, "folders": [str(directory)], "entries": [entry],
        "combinations": [{"x": value} for value in values or ("8",)], "stop": True,
    }  # fmt: skip


def render(known: RenderedTexts, wanted: Request) -> list[Answer]:
    answers = process.render(wanted)
    known.put(wanted, answers)
    return answers


def test_what_was_rendered_is_found(known: RenderedTexts, family: Path) -> None:
    wanted = request(family, "1", "2")
    assert known.find(wanted) is None
    made = render(known, wanted)
    found = known.find(wanted)
    assert found is not None
    assert [(a["text"], a["params"], a["digest"]) for a in found] == [
        (a["text"], a["params"], a["digest"]) for a in made
    ]
    assert found[1]["text"] == "part second 2"


def test_the_same_files_elsewhere_are_the_same(known: RenderedTexts, family: Path, tmp_path: Path) -> None:
    render(known, request(family))
    write(tmp_path / "elsewhere", **FILES)
    assert known.find(request(tmp_path / "elsewhere")) is not None


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
    before = render(known, request(family))[0]["text"]
    write(family, **change)
    assert known.find(request(family)) is None
    after = render(known, request(family))[0]["text"]
    assert after != before
    found = known.find(request(family))
    assert found is not None
    assert found[0]["text"] == after


def test_other_combinations_entries_and_syntaxes_are_others(known: RenderedTexts, family: Path) -> None:
    render(known, request(family, "1"))
    for wanted in (request(family, "2"), request(family, "1", "2"), request(family, "1", entry="{{x}} q")):
        assert known.find(wanted) is None
    assert known.find(request(family, "1", syntax="cmake")) is None


def test_a_template_that_moves_out_of_the_family_is_rendered_again(
    known: RenderedTexts, family: Path, tmp_path: Path
) -> None:
    render(known, request(family))
    write(tmp_path / "outside", part="part")
    (family / "a/part.jinja").unlink()
    (family / "a/part.jinja").symlink_to(tmp_path / "outside" / "part")
    assert known.find(request(family)) is None
    (family / "a/part.jinja").unlink()
    assert known.find(request(family)) is None
    (family / "a/part.jinja").mkdir()
    assert known.find(request(family)) is None


def test_an_error_is_not_stored(known: RenderedTexts, family: Path) -> None:
    write(family, **{"t.jinja": "{{ x|int }}"})
    wanted = request(family, "1", "a")
    assert "what" in render(known, wanted)[-1]
    assert known.find(wanted) is None


def test_a_cmake_template_is_stored_too(known: RenderedTexts, family: Path) -> None:
    write(family, **{"t.jinja": "@x@;"})
    wanted = request(family, "1", "2", syntax="cmake", entry="@x@ p")
    render(known, wanted)
    found = known.find(wanted)
    assert found is not None
    assert [answer["text"] for answer in found] == ["1;", "2;"]


def test_another_language_renders_again(known: RenderedTexts, family: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    render(known, request(family))
    monkeypatch.setattr(rendered_texts, "_language", lambda: "another")
    assert known.find(request(family)) is None


def test_a_damaged_entry_is_none(known: RenderedTexts, family: Path, tmp_path: Path) -> None:
    render(known, request(family))
    (path,) = (path for path in (tmp_path / "cache" / ENTRIES).rglob("*") if path.is_file())
    store = CacheDir(tmp_path / "cache", 1 << 30)
    for damaged in (b"", b"{}", b'{"read": {}, "answers": []}', b"\xff"):
        store.put(ENTRIES, path.parent.name + path.name, damaged)
        assert known.find(request(family)) is None


def test_names_that_are_not_utf8_are_not_stored(known: RenderedTexts, family: Path) -> None:
    write(family, **{"t.jinja": "{% include 'caf\\udce9' ignore missing %}"})
    render(known, request(family))
    assert known.find(request(family)) is None


def test_without_a_cache_nothing_is_stored(family: Path) -> None:
    nothing = RenderedTexts(None)
    render(nothing, request(family))
    assert nothing.find(request(family)) is None


def test_a_family_is_rendered_without_the_process(
    known: RenderedTexts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded = declaration.load_family(write_family(tmp_path / "mini", MINI))
    first = list(render_family(loaded, known=known))
    monkeypatch.setattr(process, "render", None)
    assert list(render_family(loaded, known=known)) == first
