"""Rendering ends, in bounded time and memory, whatever a template says; and the next template is rendered as ever."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from jitlto.base.errors import RenderError
from jitlto.families import declaration
from jitlto.families.rendering import process
from jitlto.families.rendering.process import Answer, render
from jitlto.families.templates import render_family
from tests.support.errors import raises
from tests.support.families import MINI, write_family
from tests.support.process import ROOT

pytestmark = pytest.mark.one_major


def render_text(directory: Path, text: str, *values: str, stop: bool = True) -> list[Answer]:
    path = directory / "t.jinja"
    path.write_text(text, "utf-8")
    combinations = [{"x": value} for value in values or ("8",)]
    return render({
        "template": str(path), "syntax": "jinja", "folders": [str(directory)], "entries": ["{{x}}* p"],
        "combinations": combinations, "stop": stop,
    })  # fmt: skip


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Limits that are soon met."""
    monkeypatch.setattr(process, "SECONDS", 1)
    monkeypatch.setattr(process, "MEMORY", 128 << 20)
    monkeypatch.setattr(process, "LENGTH", 1 << 20)


def test_texts_and_params_of_every_combination(tmp_path: Path) -> None:
    answers = render_text(tmp_path, "<{{x}}é>", "a", "b")
    assert [(answer["text"], answer["params"]) for answer in answers] == [("<aé>", ["a* p"]), ("<bé>", ["b* p"])]


def test_the_first_error_ends_it_or_not(tmp_path: Path) -> None:
    text = "{{ x|int }}"
    assert ["text" in answer for answer in render_text(tmp_path, text, "1", "a", "2")] == [True, False]
    assert ["text" in answer for answer in render_text(tmp_path, text, "1", "a", "2", stop=False)] == [
        True,
        False,
        True,
    ]


def test_a_changed_template_is_read_again(tmp_path: Path) -> None:
    assert [render_text(tmp_path, text)[0]["text"] for text in ("one", "two")] == ["one", "two"]


MEMORY = [
    "{{ 'a' * 10**10 }}", "{{ 'a'.ljust(10**10) }}", "{{ 'a'|center(10**10) }}", "{{ '%10000000000d'|format(1) }}",
    "{{ '%10000000000d' % 1 }}", "{{ '{:10000000000}'.format(1) }}", "{{ 'a'|indent(10**10) }}",
    "{{ ('a' * 10**6)|replace('a', 'a' * 10**6) }}", "{{ [0] * 10**10 }}", "{{ range(10**10)|list|length }}",
    "{{ range(10**9)|join }}", "{{ 'x\\n' * 10**6|int * 10**4 }}",
    "{% set d = {'a': 'aaaa'} %}{% for i in range(60) %}{% if d.update({'a': d.a + d.a}) %}{% endif %}{% endfor %}",
    "{% set x = [[]] %}{% for i in range(10**10) %}{% if x.append('a' * 1000) %}{% endif %}{% endfor %}",
    "{% for i in range(10**4) %}{% for j in range(10**4) %}aaaaaaaaaa{{ i }}{% endfor %}{% endfor %}",
    "{% for i in range(2 * 1024) %}{{ 'a' * 1024 }}{% endfor %}",
]  # fmt: skip
TIME = [
    "{% for i in range(10**10) %}{% endfor %}",
    "{% for i in range(10**6) %}{% for j in range(10**6) %}{% endfor %}{% endfor %}",
    "{{ 9 ** (9 ** 9) }}", "{{ 'R\"(' * 3 * 10**5 }}", "{{ range(10**12)|sum }}",
    "{% if 10**10 in range(10**12)|map('string') %}{% endif %}",
]  # fmt: skip
RECURSION = [
    "{% macro m(n) %}{{ m(n + 1) }}{% endmacro %}{{ m(0) }}", "{% include 't.jinja' %}", "{% extends 't.jinja' %}",
    "{% macro m(n) %}{% call m(n + 1) %}{% endcall %}{{ caller() }}{% endmacro %}{% call m(0) %}{% endcall %}",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("text", [*MEMORY, *TIME, *RECURSION])
def test_a_template_that_takes_too_much_is_one_error(tmp_path: Path, text: str) -> None:
    begin = time.monotonic()
    (answer,) = render_text(tmp_path, text)
    assert time.monotonic() - begin < 20
    assert answer["code"] in ("render-limit", "render-failed"), answer
    assert answer["what"]
    assert answer["where"].startswith(str(tmp_path / "t.jinja"))
    assert render_text(tmp_path, "fine")[0]["text"] == "fine"


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "text",
    [
        "(" * 10**5, "{{ " + "(" * 10**4 + "1" + ")" * 10**4 + " }}", "{{ " + "-" * 10**5 + "1 }}", "{{ [" * 3000,
        "{% if x == '1' %}" * 2000 + "{% endif %}" * 2000, "{{ 1" + " + 1" * 10**5 + " }}",
    ],
    ids=["open parentheses", "parentheses", "signs", "brackets", "conditions", "a sum"],  # pytest makes them a variable
)  # fmt: skip
def test_a_template_that_is_nested_deeply_is_rendered_or_one_error(tmp_path: Path, text: str) -> None:
    (answer,) = render_text(tmp_path, text)
    assert "text" in answer or answer["code"] in ("render-limit", "render-syntax", "render-failed")
    assert render_text(tmp_path, "fine")[0]["text"] == "fine"


@pytest.mark.slow
@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("keep_going", [False, True])
def test_the_error_names_template_group_and_combination(tmp_path: Path, keep_going: bool) -> None:
    text = "{% if data_type == 'double' %}{% for i in range(10**12) %}{% endfor %}{% endif %}{{data_type}}"
    family = declaration.load_family(write_family(tmp_path, MINI | {"kern.cu.jinja": text}))
    on_error = (lambda *_: None) if keep_going else None
    with raises(RenderError, "render-limit", "group kern", "data_type=double", "1 s", where="kern.cu.jinja"):
        list(render_family(family, on_error=on_error))


@pytest.mark.slow
def test_a_process_that_was_killed_while_it_was_idle_is_replaced(tmp_path: Path) -> None:
    render_text(tmp_path, "")
    spare = process._spare[os.getpid()]
    spare._process.kill()
    spare._process.wait()
    assert "text" in render_text(tmp_path, "")[0]


@pytest.mark.slow
def test_a_process_that_is_killed_at_work_is_an_error(tmp_path: Path) -> None:
    render_text(tmp_path, "")
    number = process._spare[os.getpid()]._process.pid
    timer = threading.Timer(0.5, os.kill, (number, 9))
    timer.start()
    (answer,) = render_text(tmp_path, TIME[0])
    timer.join()
    assert answer["code"] == "render-limit"
    assert "9" in answer["what"]


def test_no_process_can_be_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "_spare", {})
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    with raises(RenderError, "render", where="t.jinja"):
        render_text(tmp_path, "")


def test_one_process_serves_all_that_come_one_after_the_other(tmp_path: Path) -> None:
    render_text(tmp_path, "")
    number = process._spare[os.getpid()]._process.pid
    render_text(tmp_path, "")
    assert process._spare[os.getpid()]._process.pid == number


def test_paths_are_relative_to_the_directory_of_the_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / name)
        (answer,) = render_text(Path(), name + "{% include 'x' %}")
        assert answer["where"] == "t.jinja:1"
        assert render_text(Path(), name)[0]["text"] == name


@pytest.mark.slow
def test_threads_do_not_share_it(tmp_path: Path) -> None:
    texts: dict[int, str] = {}

    def work(number: int) -> None:
        directory = tmp_path / str(number)
        directory.mkdir()
        texts[number] = "".join(render_text(directory, f"{number} {{{{x}}}}", str(n))[0]["text"] for n in range(10))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert texts == {number: "".join(f"{number} {n}" for n in range(10)) for number in range(4)}


@pytest.mark.slow
def test_a_fork_has_one_of_its_own_and_it_ends_with_the_program(tmp_path: Path) -> None:
    script = f"""
import os, sys
from jitlto.families.rendering import process
def render():
    answers = process.render({{"template": {str(tmp_path / "t")!r}, "syntax": "jinja", "folders": [{str(tmp_path)!r}],
                               "entries": [], "combinations": [{{}}], "stop": True}})
    print(answers[0]["text"], process._spare[os.getpid()]._process.pid, flush=True)
render()
if os.fork() == 0:
    render()
else:
    os.wait()
    render()
"""
    (tmp_path / "t").write_text("text")
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, cwd=ROOT)
    (one, a), (two, b), (three, c) = (line.split() for line in done.stdout.splitlines())
    assert {one, two, three} == {"text"}
    assert a == c != b
    assert done.stderr == ""
    time.sleep(0.2)
    assert not any(Path(f"/proc/{number}").exists() for number in (a, b))


@pytest.mark.slow
def test_standard_streams_may_be_closed(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("text")
    script = f"""
import os
for number in range(3):
    os.close(number)
from jitlto.families.rendering import process
answers = process.render({{"template": {str(tmp_path / "t")!r}, "syntax": "jinja", "folders": [{str(tmp_path)!r}],
                           "entries": [], "combinations": [{{}}], "stop": True}})
open({str(tmp_path / "out")!r}, "w").write(answers[0]["text"])
"""
    subprocess.run([sys.executable, "-c", script], check=True, cwd=ROOT)
    assert (tmp_path / "out").read_text() == "text"


@pytest.mark.slow
def test_it_ends_in_silence_when_the_program_is_killed(tmp_path: Path) -> None:
    (tmp_path / "t").write_text("{% for _ in range(20000) %}x{% endfor %}{{ n }}")
    script = f"""
import os, signal, threading
from jitlto.families.rendering import process
combinations = [{{"n": str(n)}} for n in range(200)]
request = {{"template": {str(tmp_path / "t")!r}, "syntax": "jinja", "folders": [{str(tmp_path)!r}],
           "entries": [], "combinations": combinations[:1], "stop": True}}
process.render(request)
threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGKILL)).start()
while True:
    process.render(request | {{"combinations": combinations}})
"""
    killed = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (killed.returncode, killed.stderr) == (-signal.SIGKILL, "")


@pytest.mark.slow
def test_what_start_up_code_prints_is_no_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sitecustomize.py").write_text("print('hello')")
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}:{ROOT}")
    monkeypatch.setattr(process, "_spare", {})
    assert render_text(tmp_path, "text")[0]["text"] == "text"
    process._spare[os.getpid()].close()
