"""Templates: the text of a matrix is no number, an undefined name no answer, and only text and numbers are printed."""

import os
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jitlto.base.errors import RenderError
from jitlto.families.language import Template
from tests.support.errors import raises

VALUES = {"veclen": "8", "other": "16", "flag": "false", "data_type": "float", "nothing": "", "many": "4,8"}
PRELUDE = "{% macro m(x='') %}{{x}}{% endmacro %}"
EMPTY = Path(__file__).with_name("__init__.py")  # a template of nothing; what is tested is an entry of params


def render(expression: str, **values: str) -> str:
    template = Template(EMPTY, "jinja", (PRELUDE + "{{ " + expression + " }}",))
    return template.render(VALUES | values)[1][0]


def condition(expression: str) -> str:
    return f"'yes' if {expression} else 'no'"


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "veclen == 8", "8 == veclen", "veclen != 8", "veclen == 8.0", "veclen == true", "flag == false", "veclen > 4",
        "4 < veclen", "4 <= veclen <= 16", "veclen in [4, 8]", "veclen not in [4, 8]", "veclen in (4, 8)",
        "8 in [veclen]",
        "veclen in range(9)", "veclen in ['4', '8']|map('int')",
        "[veclen, 1] == [8, 1]", "veclen is eq 8", "veclen is equalto(8)", "veclen is ne 8", "veclen is gt 4",
        "veclen is in [4, 8]", "[veclen]|select('eq', 8)|list",
        "[veclen]|reject('equalto', 8)|list", "[4, 8].count(veclen)", "veclen|length == veclen",
        "(veclen if true else '') == 8",
        # Two texts that are meant as numbers: "16" is less than "8".
        "other > '8'", "veclen < other", "'4' <= veclen", "other is lessthan veclen",
        # Text repeated or joined where a product or a sum was meant.
        "veclen * 4", "4 * veclen", "veclen + veclen", "data_type + 'x'", "'x' + data_type",
        "[veclen, other]|max", "[veclen, other]|min", "[veclen, other]|sort", "['8', other]|sort(case_sensitive=true)",
        # Text is true, whatever it says.
        "flag", "not flag", "flag and true", "true and flag", "flag or false",
        "[flag]|select|list", "[flag]|first", "flag|default('x', true)",
        # Text that is no number: Jinja would make 0 of it.
        "data_type|int", "data_type|float", "'4u'|int", "nothing|int",
    ],
)  # fmt: skip
def test_text_that_is_taken_for_a_number_or_a_truth_value_is_refused(expression: str) -> None:
    with raises(RenderError, "render-text-as-number"):
        render(condition(expression))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("veclen == '8'", True), ("veclen != '8'", False), ("veclen|int == 8", True), ("veclen|int in [4, 8]", True),
        ("veclen|int > 4", True), ("veclen|float >= 8", True), ("4 <= veclen|int <= 16", True),
        ("8 == veclen|int", True),
        ("veclen in ['4', '8']", True), ("veclen not in ['4', '8']", False), ("veclen in 'x8x'", True),
        ("veclen in many.split(',')", True), ("veclen|int in range(9)", True), ("{'8': 'a'}[veclen] == 'a'", True),
        ("{8: 'a'}[veclen|int] == 'a'", True), ("{8: 'a'}.get(veclen|int, '') == 'a'", True), ("flag == 'true'", False),
        ("data_type", True), ("nothing", False), ("not nothing", True),
        ("data_type is eq 'float'", True), ("veclen|int * 4 == 32", True),
        ("[veclen, other]|map('int')|max == 16", True),
        ("[1, 2] == [1, 2]", True), ("1 in [1, 'a']", True), ("'%04d' % veclen|int == '0008'", True),
        ("veclen|int(0) == 8", True), ("data_type|int(7) == 7", True), ("'ab' * 2 == 'abab'", True),
        ("veclen is string", True),
        ("[] == []", True), ("data_type is defined and undefined_name is not defined", True), ("1 < 2 < 3", True),
        ("veclen is none", False), ("{} == {}", True), ("veclen|int is even", True), ("none == veclen", False),
    ],
)  # fmt: skip
def test_comparisons_that_say_what_they_mean(expression: str, expected: bool) -> None:
    assert render(condition(expression)) == ("yes" if expected else "no")


@pytest.mark.slow
@given(st.text(max_size=6), st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans()))
def test_no_text_is_ever_found_equal_or_unequal_to_a_number(text: str, number: float) -> None:
    literal = str(number).lower() if isinstance(number, bool) else f"({number!r})"
    if re.search("inf", literal):
        return
    for operation in ("==", "!=", "<", ">="):
        with raises(RenderError, "render-text-as-number"):
            render(condition(f"x {operation} {literal}"), x=text)
        with raises(RenderError, "render-text-as-number"):
            render(condition(f"{literal} {operation} x"), x=text)


@pytest.mark.parametrize(
    "expression",
    ["nosuch is none", "nosuch is string", "nosuch is eq '8'", "nosuch is sameas 1", "nosuch is even",
     "veclen is in [nosuch]", "veclen.nosuch is none", "nosuch is not number", "veclen.nosuch == '8'",
     "[veclen]|select('eq', nosuch)|list",
     "nosuch == '8'", "not nosuch"],
)  # fmt: skip
def test_an_undefined_name_is_no_answer_to_a_question(expression: str) -> None:
    with raises(RenderError, "render-undefined"):
        render(condition(expression))


# What Python would describe, often by an address that is another one in the next run.
DESCRIBED = [
    "range", "self", "m", "''.join", "[]", "[range]", "{}", "{}.items", "none", "many.split(',')|map('int')", "(1, 2)",
]  # fmt: skip


@pytest.mark.parametrize("value", DESCRIBED)
def test_only_text_and_numbers_are_printed(value: str) -> None:
    with raises(RenderError, "render-failed"):
        render(value)


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ("veclen", "8"), ("veclen|int", "8"), ("1.5", "1.5"), ("1 == 1", "True"), ("veclen ~ 'x' ~ 1", "8x1"),
        ("[1, 'a', veclen]|join(', ')", "1, a, 8"), ("'{:>3}|{}'.format(veclen, 1)", "  8|1"),
        ("'%s %d' % (veclen, 1)", "8 1"),
        ("'%s'|format(veclen)", "8"), ("data_type|upper", "FLOAT"), ("['a']|map('upper')|join", "A"),
        ("'a'|center(3)", " a "),
        ("'{0[0]}'.format('ab')", "a"), ("[{'a': 1}, {'a': 2}]|join(',', 'a')", "1,2"), ("m(3)", "3"),
        ("[1]|tojson", "[1]"),
        ("'{a}'.format_map({'a': 1})", "1"), ("'%(a)s' % {'a': 1}", "1"), ("','.join(['a', 'b'])", "a,b"),
    ],
)  # fmt: skip
def test_text_and_numbers_are_printed(expression: str, expected: str) -> None:
    assert render(expression) == expected


@pytest.mark.parametrize("name", ["../outside.jinja", "{}/outside.jinja", "x/../../outside.jinja", "fifo", "."])
def test_no_name_leads_out_of_the_directory(tmp_path: Path, name: str) -> None:
    (tmp_path / "family").mkdir()
    (tmp_path / "outside.jinja").write_text("secret")
    os.mkfifo(tmp_path / "family" / "fifo")
    (tmp_path / "family" / "t.jinja").write_text(f"{{% include '{name.format(tmp_path)}' %}}")
    with raises(RenderError, "render-missing-template"):
        Template(tmp_path / "family" / "t.jinja", "jinja").render({})


@pytest.mark.parametrize(
    "expression", ["data_type.foo.bar", "data_type['a']", "data_type()", "-veclen", "range(veclen)"]
)
def test_messages_call_a_value_text(expression: str) -> None:
    with pytest.raises(RenderError, match="'text") as caught:
        render(expression)
    assert "Value" not in str(caught.value)
