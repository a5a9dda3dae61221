"""The matrix product: semantics, strict rules, order and cost."""

import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jitlto.base.errors import MatrixError
from jitlto.families import matrix
from tests.support.errors import raises

# --- An independent reference: recursive, in lists, straight from the definition ---


def writes(value: Any, key: str | None = None) -> list[list[tuple[str, Any]]]:
    """Yield every path through a document as the list of leaves that it writes."""
    if isinstance(value, dict):
        result: list[list[tuple[str, Any]]] = [[]]
        for name in sorted(value):
            result = [left + right for left in result for right in writes(value[name], name)]
        return result
    if isinstance(value, list):
        return [way for element in value for way in writes(element, key)]
    assert key is not None
    return [[(key, value)]]


def strict_verdict(value: Any) -> str | None:
    ways = writes(value)
    if not ways:
        return "matrix-empty"
    if any(len(dict(way)) < len(way) for way in ways):
        return "matrix-written-twice"
    if len({frozenset(way) for way in ways}) < len(ways):
        return "matrix-identical-combinations"
    return None


def exactly(combinations: Any) -> list[str]:
    """Convert to text, in which 1, 1.0 and true differ, and different orders of names too."""
    return [json.dumps(combination) for combination in combinations]


def expand(document: Any, *, lenient: bool = False) -> Iterator[dict[str, matrix.Value]]:
    return matrix.Matrix(document, lenient=lenient).combinations()


names = st.sampled_from(["a", "b", "c", "_g", "_h"])


def documents(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    below = st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(names, inner, max_size=3),
        max_leaves=9,
    )
    group = st.dictionaries(names, below, max_size=3)
    return group | st.lists(group, max_size=3)


strings = st.sampled_from(["x", "y"])
anything = strings | st.none() | st.booleans() | st.integers(0, 1) | st.just(1.5)
# --- Semantics ---


@pytest.mark.slow
@settings(deadline=None, max_examples=100)
@given(documents(anything))
def test_lenient_product_is_the_plain_definition(document: Any) -> None:
    loaded = matrix.Matrix(document, lenient=True)
    expected = [dict(way) for way in writes(document)]
    assert exactly(loaded.combinations()) == exactly(expected)
    assert loaded.count == len(expected)


@pytest.mark.slow
@settings(deadline=None, max_examples=200)
@given(documents(strings))
def test_strict_product_is_the_plain_one_or_the_error_that_enumeration_would_find(document: Any) -> None:
    verdict = strict_verdict(document)
    if verdict is None:
        assert exactly(expand(document)) == exactly(dict(way) for way in writes(document))
    else:
        with raises(MatrixError, verdict):
            expand(document)


def test_the_conditional_matrix_of_a_search_kernel_has_24_combinations() -> None:
    f, d = {"out_type": "float", "out_abbrev": "f"}, {"out_type": "double", "out_abbrev": "d"}
    document = {
        "_data_type": [
            {"data_type": "float", "type_abbrev": "f", "_output_type": [f, d]},
            {"data_type": "__half", "type_abbrev": "h", "_output_type": [f]},
        ],
        "_index": [
            {"idx_type": "uint32_t", "idx_abbrev": "ui"},
            {"idx_type": "int64_t", "idx_abbrev": "l"},
        ],
        "_optimized": [
            {"optimized_name": "optimized", "optimized_value": "true", "veclen": ["1", "4"]},
            {"optimized_name": "standard", "optimized_value": "false", "veclen": ["8", "16"]},
        ],
    }
    loaded = matrix.Matrix(document)
    combinations = list(loaded.combinations())
    assert loaded.count == len(combinations) == 24
    assert loaded.warnings == ()
    assert list(combinations[0].items()) == [
        ("out_abbrev", "f"),
        ("out_type", "float"),
        ("data_type", "float"),
        ("type_abbrev", "f"),
        ("idx_abbrev", "ui"),
        ("idx_type", "uint32_t"),
        ("optimized_name", "optimized"),
        ("optimized_value", "true"),
        ("veclen", "1"),
    ]
    assert [c["veclen"] for c in combinations[:4]] == ["1", "4", "8", "16"]
    assert {c["out_type"] for c in combinations if c["data_type"] == "__half"} == {"float"}


def test_lenient_keeps_json_types_empty_products_and_repeats(tmp_path: Path) -> None:
    assert exactly(expand({"a": [1, "1", True, None, 1.5, 1]}, lenient=True)) == [
        '{"a": 1}',
        '{"a": "1"}',
        '{"a": true}',
        '{"a": null}',
        '{"a": 1.5}',
        '{"a": 1}',
    ]
    assert list(expand({"a": ["x"] * 9, "b": []}, lenient=True)) == []
    assert list(expand([], lenient=True)) == []
    assert list(matrix.load_matrix(written(tmp_path, '{"a": "x", "a": "y"}'), lenient=True).combinations()) == [
        {"a": "y"}
    ]


# --- Strict rules ---


@pytest.mark.parametrize(
    ("document", "where", "code", "names"),
    [
        ({"a": ["x"], "b": {"c": []}}, "/b/c", "matrix-empty", []),
        ([], None, "matrix-empty", []),
        ({"a": ["x", "y", "x"]}, "/a/2", "matrix-identical-combinations", ["/a/0 and /a/2", "a=x"]),
        ({"a": ["y", "x", {"a": "x", "b": "y"}, "x"]}, "/a/3", "matrix-identical-combinations", ["/a/1 and /a/3"]),
        ([{"a": "x"}, {"_g": [{"a": ["z", "x"]}]}], "/1/_g/0/a/1", "matrix-identical-combinations", ["a=x"]),
        ({"_g": [{}, {"a": "x"}, {}]}, None, "matrix-identical-combinations", ["{}"]),
        ({"a": "x", "_g": [{"b": "y"}, {"a": "x"}]}, None, "matrix-written-twice", ["'a'", "/_g/1/a and /a"]),
        ({"k": {"_g/h": {"a": "x"}, "_~": {"a": "y"}}}, "/k", "matrix-written-twice", ["/k/_g~1h/a and /k/_~0/a"]),
        ({"a": {"b": ["x", 1]}}, "/a/b/1", "matrix-not-a-string", [" 1 "]),
        ({"a": None}, "/a", "matrix-not-a-string", ["null"]),
        ({"a": [False]}, "/a/0", "matrix-not-a-string", ["false"]),
        ({"a": 1.0}, "/a", "matrix-not-a-string", ["1.0"]),
    ],
)
def test_strict_errors_have_a_message_a_place_and_a_hint(
    document: Any, where: str | None, code: str, names: list[str]
) -> None:
    with raises(MatrixError, code, *names, hint="") as caught:
        expand(document)
    assert caught.value.where == where
    list(expand(document, lenient=True))


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("document", "where", "code"),
    [
        ("x", None, "matrix-unnamed-value"),
        ([{"a": "x"}, ["y"]], "/1/0", "matrix-unnamed-value"),
        ({"a": float("nan")}, "/a", "matrix-not-json"),
        ({"a": [float("inf")]}, "/a/0", "matrix-not-json"),
        ({"a": ("x",)}, "/a", "matrix-not-json"),
        ({"a": {1: "x"}}, "/a", "matrix-not-json"),
        ({"a": "\ud800"}, "/a", "matrix-not-json"),
    ],
)
def test_meaningless_documents_are_errors_in_every_mode(
    document: Any, where: str | None, code: str, lenient: bool
) -> None:
    with raises(MatrixError, code) as caught:
        expand(document, lenient=lenient)
    assert caught.value.where == where


# --- Naming convention ---


@pytest.mark.parametrize(
    ("document", "where", "better"),
    [
        ({"_a": "x"}, "/_a", "`a`"),
        ({"g": [{"a": "x"}]}, "/g", "`_g`"),
        ({"g": {}, "a": "x"}, "/g", "`_g`"),
        ({"_g": [{"__a/b": ["x", "y"]}]}, "/_g/0/__a~1b", "`a/b`"),
        ({"_a": "x", "a": "y"}, "/_a", "`a_`"),
        ({"__": "x"}, "/__", "a name without `_`"),
    ],
)
def test_a_breach_of_the_naming_convention_warns_with_place_and_better_name(
    document: Any, where: str, better: str
) -> None:
    loaded = matrix.Matrix(document)
    (warning,) = loaded.warnings
    assert warning.code == "matrix-name"
    assert warning.message.startswith(f"{where}: ")
    assert warning.message.endswith(f"rename it to {better}")
    assert exactly(loaded.combinations()) == exactly(dict(way) for way in writes(document))


# --- Files ---


def written(folder: Path, content: str | bytes) -> Path:
    path = folder / "m.json"
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def test_a_byte_order_mark_and_letters_beyond_ascii_are_fine(tmp_path: Path) -> None:
    path = written(tmp_path, b"\xef\xbb\xbf" + '{"é": ["ß", "\\u00df2"]}'.encode())
    assert list(matrix.load_matrix(path).combinations()) == [{"é": "ß"}, {"é": "ß2"}]


@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("content", "place", "code"),
    [
        ('{"a": \n ["x" "y"]}', ":2:7", "matrix-not-json"),
        ('{"a": "x"} 1', ":1:12", "matrix-not-json"),
        ("{'a': 'x'}", ":1:2", "matrix-not-json"),
        ('{"a": "x', ":1:7", "matrix-not-json"),
        ("", "", "matrix-not-json"),
        (" \n\t", "", "matrix-not-json"),
        (b"\xef\xbb\xbf", "", "matrix-not-json"),
        (b'{"a":\n "\xff"}', ":2", "matrix-not-json"),
        ('{"a": "x"}'.encode("utf-16"), ":1", "matrix-not-json"),
        ('{"a": NaN}', ":1:2 (/a)", "matrix-not-json"),
        ('{"a":\n [-Infinity]}', ":2:3 (/a/0)", "matrix-not-json"),
        ('{"a": 1e999}', ":1:2 (/a)", "matrix-not-json"),
        ('{"a": ' + "1" * 10_000 + "}", "", "matrix-too-large"),
        ("[" * 200_000 + "]" * 200_000, "", "matrix-too-large"),
        ('{"a":' * 200_000 + '"x"' + "}" * 200_000, "", "matrix-too-large"),
    ],
)
def test_a_bad_file_is_one_clear_error(
    tmp_path: Path, content: str | bytes, place: str, code: str, lenient: bool
) -> None:
    path = written(tmp_path, content)
    with raises(MatrixError, code) as caught:
        matrix.load_matrix(path, lenient=lenient)
    assert caught.value.where == f"{path}{place}"


@pytest.mark.parametrize(
    ("text", "place", "code"),
    [
        ('{"_g": [{"a": "x"},\n{"a": "y", "b": "z",\n "a": "w"}]}', ":3:2 (/_g/1/a)", "matrix-duplicate-member"),
        ('{"b": {"c": ["y"]},\n\n"a": ["x", "x"]}', ":3:12 (/a/1)", "matrix-identical-combinations"),
        ('[\n  {"a": "{,:]", "b": [\n[], "\\"", [2]\n]}]', ":3:12 (/0/b/2/0)", "matrix-not-a-string"),
        ('{"a": "x",\n"\\u00e9/~":\n{"b":\n[]}}', ":3:2 (/é~1~0/b)", "matrix-empty"),
        ("\n[]", "", "matrix-empty"),
        ('\r\n{"a": true,\r\n"b": ""}', ":2:2 (/a)", "matrix-not-a-string"),
    ],
)
def test_a_broken_rule_is_reported_with_its_place_in_the_file(tmp_path: Path, text: str, place: str, code: str) -> None:
    path = written(tmp_path, text)
    with raises(MatrixError, code) as caught:
        matrix.load_matrix(path)
    assert caught.value.where == f"{path}{place}"


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "absent.json"):
        with raises(MatrixError, "matrix-unreadable", where=str(path), hint="JSON"):
            matrix.load_matrix(path)


# --- Cost ---


def wide(digits: int) -> dict[str, list[dict[str, Any]]]:
    """10**digits combinations, in groups."""
    return {f"_{n}": [{n: str(i), f"{n}_name": [f"v{i}"]} for i in range(10)] for n in "abcdefgh"[:digits]}


@pytest.mark.timing
@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
def test_100_000_combinations_in_two_seconds(lenient: bool) -> None:
    start = time.process_time()
    assert sum(1 for _ in expand(wide(5), lenient=lenient)) == 100_000
    assert time.process_time() - start < 2


def chain(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {}
    for i in range(depth):
        document = {"_g": document, f"n{i}": "x"}
    return document


def ladder(depth: int) -> dict[str, Any]:
    document: dict[str, Any] = {"end": "x"}
    for i in range(depth):
        document = {"_g": [document, {f"m{i}": "x"}], f"n{i}": ["x", "y"]}
    return document


MANY = range(10_000)


@pytest.mark.slow
@pytest.mark.parametrize("lenient", [False, True])
@pytest.mark.parametrize(
    ("make", "count"),
    [
        pytest.param(lambda: {f"n{i}": f"{i}" for i in MANY}, 1, id="members"),
        pytest.param(lambda: {f"n{i}": ["x", "y"] for i in MANY}, 2**10_000, id="choices"),
        pytest.param(lambda: {"a": [f"{i}" for i in range(100_000)]}, 100_000, id="values"),
        pytest.param(lambda: {"_g": [{"a": f"{i}", "b": f"{i}"} for i in MANY]}, 10_000, id="groups"),
        pytest.param(lambda: [{f"n{i}": "x"} for i in MANY], 10_000, id="names"),
        pytest.param(lambda: [{"k": k} | {f"n{i}": ["x", "y"] for i in MANY} for k in "xy"], 2**10_001, id="unions"),
        pytest.param(lambda: chain(200), 1, id="depth"),
        pytest.param(lambda: ladder(100), 3 * 2**100 - 2, id="ladder"),
    ],
)
def test_large_and_deep_documents_work(make: Callable[[], Any], count: int, lenient: bool) -> None:
    loaded = matrix.Matrix(make(), lenient=lenient)
    assert loaded.count == count
    assert next(loaded.combinations())
