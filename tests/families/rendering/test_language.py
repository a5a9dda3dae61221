"""Templates: text is no number, only text and numbers are printed, and no link leads out of the family."""

from __future__ import annotations

import os
import re
from pathlib import Path

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.filters import FILTERS
from jinja2.tests import TESTS

from jitlto.families.rendering.language import CMakeTemplate, JinjaTemplate
from jitlto.families.rendering.template_files import OutsideError
from jitlto.families.rendering.values import TextAsNumberError

pytestmark = pytest.mark.one_major

VALUES = {"veclen": "8", "other": "16", "flag": "false", "data_type": "float", "nothing": "", "many": "4,8"}
PRELUDE = "{% macro m(x='') %}{{x}}{% endmacro %}"


def render(expression: str, **values: str) -> str:
    template = JinjaTemplate(Path("none.cu.jinja"), [])
    return template.render_text(PRELUDE + "{{ " + expression + " }}", VALUES | values)


def condition(expression: str) -> str:
    return f"'yes' if {expression} else 'no'"


@pytest.mark.slow
@pytest.mark.parametrize(
    "expression",
    [
        "veclen == 8", "8 == veclen", "veclen != 8", "veclen == 8.0", "veclen == true", "flag == false", "veclen > 4",
        "4 < veclen", "4 <= veclen <= 16", "veclen in [4, 8]", "veclen not in [4, 8]", "veclen in (4, 8)",
        "8 in [veclen]",
        "veclen in {4: 1, 8: 2}", "veclen in range(9)", "veclen in ['4', '8']|map('int')", "8 in many.split(',')",
        "[veclen, 1] == [8, 1]", "veclen is eq 8", "veclen is equalto(8)", "veclen is ne 8", "veclen is gt 4",
        "veclen is in [4, 8]", "veclen is sameas 8", "flag is true", "flag is false", "[veclen]|select('eq', 8)|list",
        "[veclen]|reject('equalto', 8)|list", "{8: 'a'}[veclen]", "{8: 'a'}.get(veclen)", "{'8': 'a'}.get(8)",
        "{true: 'a'}.get(flag)", "[4, 8].count(veclen)", "(veclen|lower) == 8", "(veclen ~ '') == 8", "veclen[0] == 8",
        "veclen|trim == 8", "(veclen if true else '') == 8", "'8' == 8", "m(8) == 8", "veclen|length == veclen",
        # Two texts that are meant as numbers: "16" is less than "8".
        "other > '8'", "veclen < other", "'4' <= veclen", "other is lessthan veclen", "[veclen, other]|max == '8'",
        "[veclen, other]|min", "[veclen, other]|sort",
        # Text repeated or joined where a product or a sum was meant.
        "veclen * 4", "4 * veclen", "veclen + veclen", "veclen + '1'",
        # Text is true, whatever it says.
        "flag", "not flag", "flag and true", "true and flag", "flag or false", "flag|lower", "flag ~ ''",
        "flag.split(',')[0]", "[flag]|select|list", "[flag]|first", "flag|default('x', true)", "m(flag)",
        # Text that is no number: Jinja would make 0 of it.
        "data_type|int", "data_type|float", "'4u'|int", "nothing|int",
    ],
)  # fmt: skip
def test_text_that_is_taken_for_a_number_or_a_truth_value_is_refused(expression: str) -> None:
    with pytest.raises(TextAsNumberError):
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
        ("data_type", True), ("nothing", False), ("not nothing", True), ("data_type < 'int'", True),
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
        with pytest.raises((TextAsNumberError, TypeError)):
            render(condition(f"x {operation} {literal}"), x=text)
        with pytest.raises((TextAsNumberError, TypeError)):
            render(condition(f"{literal} {operation} x"), x=text)


@pytest.mark.slow
@given(st.integers(-(10**6), 10**6))
def test_a_number_in_a_matrix_is_equal_to_itself_once_converted(number: int) -> None:
    assert render(condition(f"x|int == ({number})"), x=str(number)) == "yes"
    assert render(condition(f"x == '{number}'"), x=str(number)) == "yes"


@pytest.mark.parametrize(
    "expression",
    ["nosuch is none", "nosuch is true", "nosuch is string", "nosuch is eq '8'", "nosuch is sameas 1",
     "veclen is in [nosuch]", "veclen.nosuch is none", "nosuch is not number", "[veclen]|select('eq', nosuch)|list",
     "nosuch == '8'", "not nosuch"],
)  # fmt: skip
def test_an_undefined_name_is_no_answer_to_a_question(expression: str) -> None:
    with pytest.raises(jinja2.UndefinedError):
        render(condition(expression))


# What Python would describe, often by an address that is another one in the next run.
DESCRIBED = [
    "range", "self", "m", "''.join", "[]", "[range]", "{}", "{}.items", "none", "many.split(',')|map('int')", "(1, 2)",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("value", DESCRIBED)
@pytest.mark.parametrize(
    "expression",
    [
        "{}", "({})|string", "'' ~ {}", "[{}]|join", "[1, {}]|join(',')", "'%s'|format({})", "'{{}}'.format({})",
        "'{{0}}'.format({})", "'{{a}}'.format(a={})", "'{{!r}}'.format({})", "'%s' % {{'a': {}}}", "'%%%s' % {}",
        "'%s' % ({}, )",
        "'%(a)s' % {{'a': {}}}", "({})|upper", "({})|e", "({})|indent", "({})|pprint", "[{}]|map('string')|join",
        "({})|center", "({})|urlencode", "('a'|replace('a', {}))", "m({})", "[{}]|map('upper')|first",
        "'{{a}}'.format_map({{'a': {}}})", "('{{}}'|attr('format'))({})", "'{{}}'['format']({})",
    ],
)  # fmt: skip
def test_only_text_and_numbers_become_text(value: str, expression: str) -> None:
    with pytest.raises(TypeError):
        render(expression.format(value))


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


_atoms = st.sampled_from(
    ["veclen", "8", "'a'", "'%s'", "'{}'", "'{0.join}'", "range", "range(3)", "self", "m", "[1, 'a']", "{'a': 1}",
     "none", "veclen.upper", "''.join", "many.split(',')", "true", "(1, 2)", "1.5", "loop", "caller", "nosuch"]
)  # fmt: skip
_attributes = st.sampled_from(["upper", "join", "format", "format_map", "items", "get", "append", "index", "name", "a"])
_expressions = st.recursive(
    _atoms,
    lambda inner: st.one_of(
        st.builds("({})|{}".format, inner, st.sampled_from(sorted(FILTERS))),
        st.builds("({})|{}({})".format, inner, st.sampled_from(sorted(FILTERS)), inner),
        st.builds("({}){}({})".format, inner, st.sampled_from(["~", "%", "+", "*", "==", " in ", " or "]), inner),
        st.builds("({}).{}".format, inner, _attributes),
        st.builds("({})|attr('{}')".format, inner, _attributes),
        st.builds("({}).{}({})".format, inner, _attributes, inner),
        st.builds("({})[{}]".format, inner, inner),
        st.builds("({})({})".format, inner, inner),
        st.builds("[{}, {}]".format, inner, inner),
        st.builds("{{'a': {}}}".format, inner),
        st.builds("({})|map('{}')".format, inner, st.sampled_from(sorted(FILTERS))),
        st.builds("({})|map(attribute='{}')".format, inner, _attributes),
        st.builds("({}) is {}".format, inner, st.sampled_from(sorted(TESTS))),
    ),
    max_leaves=6,
)


@pytest.mark.slow
@settings(max_examples=2000, deadline=None)
@given(_expressions)
def test_no_expression_gives_an_address(expression: str) -> None:
    try:
        text = render(expression)
    except Exception:  # noqa: BLE001 - which is an error of the template's author
        return
    assert not re.search(r"0x[0-9a-f]{6}|<\w+.*>", text), text


def test_lists_and_dictionaries_keep_what_is_added_to_them() -> None:
    template = JinjaTemplate(Path("none.cu.jinja"), [])
    for place in ("d['a']", "d.a", "d.get('a')", "l[0]", "(l|first)"):
        text = f"{{% set d = {{'a': []}} %}}{{% set l = [[]] %}}{{% set _ = {place}.append(x) %}}{{{{ {place}|join }}}}"
        assert template.render_text(text, {"x": "added"}) == "added"


def test_an_attribute_in_a_format_gives_no_address() -> None:
    for template in ("{0.join}", "{0.upper}", "{0.upper!r}"):
        with pytest.raises(TypeError):
            render(f"'{template}'.format('a')")


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A file outside the family's folder, ``tmp_path / "family"``."""
    (tmp_path / "family").mkdir()
    (tmp_path / "outside.jinja").write_text("secret")
    return tmp_path / "outside.jinja"


@pytest.mark.parametrize("kind", [JinjaTemplate, CMakeTemplate])
def test_a_template_that_is_a_link_out_of_the_family_is_refused(outside: Path, kind: type[JinjaTemplate]) -> None:
    family = outside.parent / "family"
    (family / "t.jinja").symlink_to(outside)
    with pytest.raises(OutsideError, match=re.escape(str(outside))):
        kind(family / "t.jinja", [str(family)]).render_file({})


@pytest.mark.parametrize("tag", ["include", "import", "extends"])
def test_templates_that_are_included_through_a_link_out_of_the_family_are_refused(outside: Path, tag: str) -> None:
    family = outside.parent / "family"
    (family / "link.jinja").symlink_to(outside)
    (family / "folder").symlink_to(outside.parent)
    for name in ("link.jinja", "folder/outside.jinja"):
        (family / "t.jinja").write_text(
            f"{{% {tag} '{name}' %}}".replace("' %}", "' as x %}" if tag == "import" else "' %}")
        )
        with pytest.raises(OutsideError):
            JinjaTemplate(family / "t.jinja", [str(family)]).render_file({})


@pytest.mark.parametrize(
    "name", ["../outside.jinja", "{}/outside.jinja", "x/../../outside.jinja", "//outside.jinja", "fifo", "."]
)
def test_no_name_leads_out_of_the_directory(outside: Path, name: str) -> None:
    family = outside.parent / "family"
    os.mkfifo(family / "fifo")
    (family / "t.jinja").write_text(f"{{% include '{name.format(outside.parent)}' %}}")
    with pytest.raises(jinja2.TemplateNotFound):
        JinjaTemplate(family / "t.jinja", [str(family)]).render_file({})


def test_links_inside_the_family_are_followed_wherever_the_family_lies(outside: Path) -> None:
    family = outside.parent / "family"
    (family / "part.jinja").write_text("part")
    (family / "link.jinja").symlink_to("part.jinja")
    (family / "t.jinja").write_text("{% include 'link.jinja' %}")
    (outside.parent / "elsewhere").symlink_to(family)
    for folder in (family, outside.parent / "elsewhere"):
        assert JinjaTemplate(folder / "t.jinja", [str(folder)]).render_file({}) == "part"
