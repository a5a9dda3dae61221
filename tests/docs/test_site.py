"""The documentation as a site: built without a warning, with all of the reference, and asking for nothing outside."""

import importlib.util
import inspect
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from types import ModuleType
from urllib.parse import unquote, urlsplit

import click
import pytest

import jitlto
from jitlto import cli
from jitlto.base import errors, events, versions
from jitlto.runtime import recording
from tests.support.process import ROOT

DOCS = ROOT / "docs"
LONGEST_BUILD = 300  # seconds
MISSING = [
    name
    for name in ("sphinx", "myst_parser", "pydata_sphinx_theme", "sphinx_click")
    if importlib.util.find_spec(name) is None
]


def needs_sphinx(test: Callable[..., None]) -> Callable[..., None]:
    """Mark a test that reads the site, which takes seconds to build."""
    skip = pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)} (the extra `docs`)")
    return pytest.mark.slow(skip(test))


# What a browser fetches by itself, as element → attribute.
FETCHED = {"script": "src", "img": "src", "iframe": "src", "source": "src", "embed": "src", "object": "data"}
FETCHED_LINKS = {"stylesheet", "preload", "icon", "modulepreload", "manifest"}


@dataclass
class Html(HTMLParser):
    """What the tests ask of a page."""

    path: Path
    ids: set[str] = field(default_factory=set)
    links: list[str] = field(default_factory=list)
    fetched: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        super().__init__()
        self.feed(self.path.read_text("utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {name: value or "" for name, value in attrs}
        if "id" in values:
            self.ids.add(values["id"])
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        if tag in FETCHED and FETCHED[tag] in values:
            self.fetched.append(values[FETCHED[tag]])
        if tag == "link" and FETCHED_LINKS & set(values.get("rel", "").split()):
            self.fetched.append(values["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as CI and readers build it; a warning fails it."""
    directory = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-d", directory / "doctrees"]
    done = subprocess.run(
        [*command, DOCS, directory / "html"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        timeout=LONGEST_BUILD,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    return directory / "html"


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Html]:
    return {path: Html(path) for path in sorted(site.rglob("*.html")) if "_static" not in path.parts}


def _defined(module: ModuleType) -> Iterator[str]:
    """The public classes and functions that a module defines."""
    for name, value in vars(module).items():
        found = inspect.isclass(value) or inspect.isfunction(value)
        if found and value.__module__ == module.__name__ and not name.startswith("_"):
            yield f"{module.__name__}.{name}"


@needs_sphinx
def test_every_public_name_is_in_the_reference(pages: dict[Path, Html]) -> None:
    described = {name for page in pages.values() for name in page.ids}
    for name in set(jitlto.__all__) - {"__version__"}:
        value = getattr(jitlto, name)
        assert {f"jitlto.{name}", f"{value.__module__}.{name}"} & described, name
    for module in (errors, events, recording, versions):
        assert set(_defined(module)) <= described, module.__name__
    for owner in ("KernelFamily", "Planner", "Plan", "Launcher", "FragmentDatabase"):
        methods = [name for name, value in vars(getattr(jitlto, owner)).items() if inspect.isfunction(value)]
        shown = {f"jitlto.{owner}.{name}" for name in methods if not name.startswith("_")}
        assert shown <= described, shown - described


@needs_sphinx
def test_every_command_is_in_the_reference(site: Path, pages: dict[Path, Html]) -> None:
    described = pages[site / "reference" / "cli.html"].ids
    assert {f"jitlto-{name}" for name in cli.cli.list_commands(click.Context(cli.cli))} <= described


@needs_sphinx
def test_the_pages_use_names_of_the_reference_only(pages: dict[Path, Html]) -> None:
    described = {name for page in pages.values() for name in page.ids}
    described |= set(jitlto.__all__) | {module.__name__ for module in (errors, events, recording, versions)}
    for path in (*sorted(DOCS.glob("*.md")), ROOT / "README.md"):
        if path.name in ("architecture.md", "errors.md"):
            continue
        for module, names in re.findall(r"^from (jitlto[\w.]*) import (.+)$", path.read_text("utf-8"), re.M):
            for name in names.split(", "):
                assert {f"{module}.{name}", name if module == "jitlto" else ""} & described, (path.name, module, name)


@needs_sphinx
def test_every_page_of_the_documentation_is_on_the_site_and_found_from_its_front(
    site: Path, pages: dict[Path, Html]
) -> None:
    written = {path for path in DOCS.rglob("*") if path.suffix in (".md", ".rst")}
    built = {site / path.relative_to(DOCS).with_suffix(".html") for path in written}
    assert built <= set(pages)
    front = {(site / urlsplit(link).path).resolve() for link in pages[site / "index.html"].links}
    assert {path for path in built if path != site / "index.html"} <= front


@needs_sphinx
def test_every_link_within_the_site_leads_somewhere(pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            assert target.is_file(), (path.name, link)
            if parts.fragment and target in pages:
                assert unquote(parts.fragment) in pages[target].ids, (path.name, link)


@needs_sphinx
def test_no_page_asks_for_anything_outside(site: Path, pages: dict[Path, Html]) -> None:
    for path, page in pages.items():
        for address in page.fetched:
            parts = urlsplit(address)
            assert parts.scheme in ("", "data") and not parts.netloc, (path.name, address)
    for style in site.rglob("*.css"):
        text = style.read_text("utf-8")
        assert not re.search(r"(?:url\(|@import)\s*['\"]?\s*(?:https?:)?//", text), style


def test_every_picture_has_colours_for_light_and_for_dark() -> None:
    pictures = sorted(DOCS.rglob("*.svg"))
    assert pictures
    for picture in pictures:
        assert "prefers-color-scheme: dark" in picture.read_text("utf-8"), picture
