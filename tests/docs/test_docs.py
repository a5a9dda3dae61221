"""The documentation is true: its files, commands and code run as written, its tables are the code's own.

A page is run from top to bottom, in one empty directory and one Python namespace:

- ``<!-- file: PATH -->`` before a block: the block is written to that file.
- A ``console`` block: each line after ``$ `` is run (a backslash continues it), and the lines below it are its output.
- A ``python`` block is executed. A ``text`` block directly after it is what it prints, or the error that ends it.
- In outputs ``...`` stands for anything. Where no output is given, none is compared.
- ``<!-- test: gpu -->`` before a block: run only where there is a GPU; ``no gpu``: only where there is none;
  ``fails``: the commands exit with 1; ``skip if no PROGRAM``: not run where the program is not found;
  ``needs NAME...``: not run unless these distributions are installed;
  ``shipped NAME``: the shipped families are already built, as file NAME. Several are separated by semicolons.

Blocks of other languages (``sh`` for installing, for example) are only shown.
"""

import contextlib
import inspect
import io
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from types import CodeType

import pytest

from jitlto.base import config, errors
from jitlto.base.errors import NoDeviceError
from jitlto.cuda import device, toolkit
from jitlto.families import declaration, pyproject
from jitlto.record import options
from jitlto.record.options import LinkOptions
from tests.support.process import ROOT

DOCS = ROOT / "docs"
PAGES = [page for page in (*sorted(DOCS.glob("*.md")), ROOT / "README.md") if page.is_file()]
#: Pages that only have links to check, and words to count.
OTHER_PAGES = [
    DOCS / "benchmarks" / "README.md", ROOT / "tests" / "promises.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md",
]  # fmt: skip
LONGEST_COMMAND = 600  # seconds

_BLOCK = re.compile(r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```[ \t]*$", re.M | re.S)
_NOTE = re.compile(r"<!-- (?P<kind>file|test): (?P<value>[^\n]*?) -->\n\Z")


@dataclass(frozen=True)
class Block:
    """One fenced block: where its first line stands, what its note says, and the output shown after it."""

    page: Path
    line: int
    language: str
    text: str
    file: str | None
    notes: tuple[str, ...]
    output: str | None

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def note(self, start: str) -> str | None:
        """What follows ``start`` in the note that begins with it."""
        return next((note.removeprefix(start).strip() for note in self.notes if note.startswith(start)), None)


def parse(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    matches = list(_BLOCK.finditer(text))
    blocks = []
    for match, following in zip(matches, [*matches[1:], None], strict=False):
        noted = _NOTE.search(text, 0, match.start())
        kind, value = (noted["kind"], noted["value"]) if noted else ("", "")
        adjoins = following and following["language"] == "text" and not text[match.end() : following.start()].strip()
        blocks.append(
            Block(
                page,
                text.count("\n", 0, match.start("text")) + 1,
                match["language"],
                match["text"],
                value if kind == "file" else None,
                tuple(note.strip() for note in value.split(";")) if kind == "test" else (),
                following["text"] if following and adjoins else None,
            )
        )
    return blocks


class Runner:
    """Runs the blocks of one page in the working directory."""

    def __init__(self, environment: dict[str, str], shipped: Path | None, gpu: bool) -> None:
        self.environment = environment
        self.namespace: dict[str, object] = {"__name__": "docs"}
        self.shipped = shipped
        self.gpu = gpu

    def run(self, block: Block) -> None:
        if self._left_out(block):
            return
        if block.file:
            path = Path(block.file)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.text, "utf-8")
        elif name := block.note("shipped "):
            assert self.shipped is not None
            shutil.copy(self.shipped, name)
        elif block.language == "console":
            self._console(block)
        elif block.language == "python":
            self._python(block)

    def _left_out(self, block: Block) -> bool:
        program = block.note("skip if no ")
        needed = (block.note("needs ") or "").split()
        return (
            ("gpu" in block.notes and not self.gpu)
            or ("no gpu" in block.notes and _has_device())
            or (program is not None and _is_missing(program))
            or not all(map(_is_installed, needed))
        )

    def _console(self, block: Block) -> None:
        for number, command, expected in commands(block.text):
            place = f"{block.page.relative_to(ROOT)}:{block.line + number}"
            done = subprocess.run(
                ["/bin/sh", "-c", command],
                env=self.environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                timeout=LONGEST_COMMAND,
                check=False,
            )
            wanted = 1 if "fails" in block.notes else 0
            assert done.returncode == wanted, f"{place}: exit status {done.returncode}\n{done.stdout}"
            if expected:
                compare(done.stdout, expected, place)

    def _python(self, block: Block) -> None:
        printed = io.StringIO()
        code = compile("\n" * (block.line - 1) + block.text, str(block.page), "exec", dont_inherit=True)
        with contextlib.redirect_stdout(printed):
            ending = self._execute(code, block)
        if block.output is not None:
            compare(printed.getvalue() + ending, block.output, block.place)

    def _execute(self, code: CodeType, block: Block) -> str:
        try:
            exec(code, self.namespace)  # noqa: S102 - our own documentation
        except Exception as error:
            if block.output is None:
                raise AssertionError(f"{block.place}: {type(error).__name__}: {error}") from error
            return f"{type(error).__name__}: {error}"
        return ""


def commands(text: str) -> Iterator[tuple[int, str, str]]:
    """The commands of a console block: line number in it, command, output shown."""
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        start = number
        assert lines[start].startswith("$ "), f"a console block begins with a command: {lines[start]!r}"
        while lines[number].endswith("\\"):
            number += 1
        command = "\n".join(lines[start : number + 1]).removeprefix("$ ")
        number += 1
        output = number
        while number < len(lines) and not lines[number].startswith("$ "):
            number += 1
        yield start, command, "\n".join(lines[output:number])


def compare(actual: str, expected: str, place: str) -> None:
    """Compare outputs; ``...`` stands for anything, trailing blanks for nothing."""
    # What takes longer than five seconds says how far it is: on which machine it does, no page can know.
    actual = re.sub(r"(?m)^(compiling|linking|checking): \d+ of \d+\b.*\n", "", actual)
    plain = "\n".join(line.rstrip() for line in actual.strip().splitlines())
    wanted = "\n".join(line.rstrip() for line in expected.strip().splitlines())
    pattern = ".*?".join(map(re.escape, wanted.split("...")))
    assert re.fullmatch(pattern, plain, re.S), f"{place}: the output shown is not the output:\n{plain}"


def _is_missing(program: str) -> bool:
    """Whether a program is neither on PATH nor in a CUDA toolkit."""
    is_of_toolkit = program in ("nvcc", "nvdisasm")
    return (toolkit.find_binary(program) if is_of_toolkit else shutil.which(program)) is None


def _is_installed(name: str) -> bool:
    try:
        metadata.distribution(name)
    except metadata.PackageNotFoundError:
        return False
    return True


def _has_device() -> bool:
    try:
        device.current()
    except NoDeviceError:
        return False
    return True


@pytest.fixture
def environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """An empty working directory, and an environment in which ``jitlto`` is the code under test."""
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, module in (("jitlto", "-m jitlto"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} {module} "$@"\n')
        (programs / name).chmod(0o755)
    workplace = tmp_path / "work"
    workplace.mkdir()
    monkeypatch.chdir(workplace)
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("JITLTO_")}
    python_path = os.pathsep.join(filter(None, [str(ROOT), inherited.get("PYTHONPATH", "")]))
    path = os.pathsep.join([str(programs), inherited.get("PATH", os.defpath)])
    own = {"JITLTO_CACHE_DIR": str(tmp_path / "cache"), "NO_COLOR": "1", "COLUMNS": "100"}
    return {**inherited, "PATH": path, "PYTHONPATH": python_path, **own}


def run_page(page: Path, environment: dict[str, str], request: pytest.FixtureRequest, *, gpu: bool) -> None:
    blocks = parse(page)
    needs_shipped = any(block.note("shipped ") for block in blocks)
    shipped = request.getfixturevalue("shipped_path") if needs_shipped else None
    runner = Runner(environment, shipped, gpu)
    for block in blocks:
        runner.run(block)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_shows_runs_as_written(
    page: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    run_page(page, environment, request, gpu=False)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "page", [page for page in PAGES if any("gpu" in block.notes for block in parse(page))], ids=lambda page: page.name
)
def test_what_a_page_shows_runs_on_a_gpu(
    page: Path, environment: dict[str, str], request: pytest.FixtureRequest
) -> None:
    run_page(page, environment, request, gpu=True)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_note_is_understood(page: Path) -> None:
    text = page.read_text("utf-8")
    used = [block for block in parse(page) if block.file or block.notes]
    assert len(re.findall(r"<!-- (?:file|test):", text)) == len(used), "a note that does not stand before a block"
    for block in used:
        for note in block.notes:
            assert note in ("gpu", "no gpu", "fails") or note.startswith(("skip if no ", "needs ", "shipped ")), (
                block.place
            )


@pytest.mark.slow
@pytest.mark.parametrize("page", [*PAGES, *OTHER_PAGES], ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_somewhere(page: Path) -> None:
    prose = _BLOCK.sub("", page.read_text("utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if "://" in target:
            continue
        file, _, anchor = target.partition("#")
        path = page.parent / file if file else page
        assert path.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(path), f"{page.name}: {target}"


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives a page's headings."""
    headings = re.findall(r"^#+ (.*)$", _BLOCK.sub("", page.read_text("utf-8")), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


# Reference pages against the code's own tables.


def section(page: str, heading: str) -> str:
    """The text under a heading, up to the next of its level or above."""
    text = (DOCS / page).read_text("utf-8")
    level = len(heading) - len(heading.lstrip("#"))
    match = re.search(rf"^{re.escape(heading)}$(.*?)(?=^#{{1,{level}}} |\Z)", text, re.M | re.S)
    assert match, f"{page} has no section {heading!r}"
    return match[1]


def rows(text: str) -> dict[str, str]:
    """The rows of the tables in a section that begin with a name in code: name → the rest."""
    return dict(re.findall(r"^\| `([^`]+)` \|(.*)$", text, re.M))


class _Asked(dict[str, str]):
    """An empty environment that notes what it was asked for."""

    def get(self, name: str, default: object = None) -> object:  # type: ignore[override]
        self[name] = ""
        return default


def test_every_environment_variable_is_in_the_reference() -> None:
    asked = _Asked()
    config.Config.read(asked)
    assert set(rows(section("configuration.md", "## Environment variables"))) == set(asked)


@pytest.mark.parametrize(
    ("heading", "names"),
    [
        ("### `[family]`", declaration._FamilyTable.__struct_fields__),
        ("### `[entrypoint.NAME]` and `[device.NAME]`", declaration._GroupTable.__struct_fields__),
        ("### `[link]`", LinkOptions.__struct_fields__),
    ],
)
def test_every_key_of_family_toml_is_in_the_reference(heading: str, names: Sequence[str]) -> None:
    assert set(rows(section("configuration.md", heading))) == set(names)


def test_every_key_of_the_table_in_pyproject_toml_is_in_the_guide() -> None:
    assert set(rows(section("packaging.md", "## `[tool.jitlto]`"))) == set(pyproject._Table.__struct_fields__)


def test_the_options_that_belong_to_the_link_are_in_the_reference() -> None:
    text = section("configuration.md", "### Rejected options")
    for name in (*options._DECLARED, *options._ALWAYS):
        assert re.search(rf"`--?{name}`", text), name


def test_the_reserved_parameter_names_are_in_the_reference() -> None:
    text = section("configuration.md", "### `[entrypoint.NAME]` and `[device.NAME]`")
    for name in declaration.RESERVED:
        assert f"`{name}`" in text, name


def test_every_exception_is_in_the_error_reference() -> None:
    classes = {
        name
        for name, value in vars(errors).items()
        if inspect.isclass(value) and issubclass(value, Exception) and value.__module__ == errors.__name__
    }
    headings = re.findall(r"^#+ `(\w+)`", (DOCS / "errors.md").read_text("utf-8"), re.M)
    assert sorted(headings) == sorted(classes)


def test_the_tree_of_exceptions_is_drawn_as_it_is() -> None:
    drawn = re.findall(r"^( *)(\w+)(?: \(also (\w+)\))?$", section("errors.md", "## The tree").split("```")[1], re.M)
    path: list[str] = []
    for indent, name, also in drawn:
        del path[len(indent) // 2 :]
        bases = [base.__name__ for base in getattr(errors, name).__bases__]
        assert bases == [*(path[-1:] or ["Exception"]), *([also] if also else [])], name
        path.append(name)
    assert len(drawn) == len(re.findall(r"^#+ `\w+`", (DOCS / "errors.md").read_text("utf-8"), re.M))


def test_nothing_is_left_to_be_filled_in() -> None:
    """Benchmark pages name files that exist, and no placeholder stays."""
    for page in sorted(DOCS.rglob("*.md")):
        text = page.read_text("utf-8")
        assert not re.search(r"^@[A-Z]+@$", text, re.M), page
    named = re.findall(r"`(\w+\.json)`", (DOCS / "benchmarks" / "README.md").read_text("utf-8"))
    assert named
    for name in named:
        assert (DOCS / "benchmarks" / name).is_file(), name
