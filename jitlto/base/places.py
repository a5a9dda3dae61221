"""Where the parts of a JSON or TOML document stand, by JSON pointer (RFC 6901): parsers keep what they read alone."""

import json
import re
import tomllib

_STRINGS = r'"""(?:\\.|[^\\])*?"{3,5}', r"'''.*?'{3,5}", r'"(?:\\.|[^"\\])*"', r"'[^'\n]*'"
_TOKEN = re.compile("|".join((*_STRINGS, r"#[^\n]*", r"[\[\]{}=:,.\n]", r"[^\s\[\]{}=:,.\"'#]+")), re.S)


def join(pointer: str, name: str) -> str:
    """Return the pointer of a member."""
    return f"{pointer}/{name.replace('~', '~0').replace('/', '~1')}"


def find_places(text: str, *, is_toml: bool = False) -> dict[str, tuple[int, int]]:
    """Return line and column, from 1, of each member and element of a document.

    Of a member it is that of its name: in JSON of the last of several, in TOML of the first part of a table. Several
    tables of one name (``[[name]]``) are one here.

    Raises:
        ValueError, IndexError: If it is malformed.
    """
    places: dict[str, tuple[int, int]] = {}
    inside: list[tuple[str, str, int]] = []  # what is open: its bracket, its pointer, and its elements so far
    here, table, line, begin = "", "", 1, 0
    is_name, is_element = is_toml, False  # what comes next
    for match in _TOKEN.finditer(text):
        token, place = match[0], (line, match.start() - begin + 1)
        if "\n" in token:
            line, begin = line + token.count("\n"), match.start() + token.rindex("\n") + 1
        if token[0] == "#":
            continue
        if is_element and token not in "]\n":
            bracket, parent, count = inside[-1]
            here, inside[-1], is_element = f"{parent}/{count}", (bracket, parent, count + 1), False
            places[here] = place
        if token == "\n" and is_toml and not inside:
            here, is_name = table, True
        elif token in "[]" and is_name and not inside:  # the head of a table
            table = here = "" if token == "[" else here
        elif token in "{[":
            inside.append((token, here, 0))
            is_name, is_element = token == "{", token == "["
        elif token in "]}":
            inside.pop()
            is_name = is_element = False
        elif token == "," and inside:
            bracket, here, _ = inside[-1]
            is_name, is_element = bracket == "{", bracket == "["
        elif token in "=:":
            is_name = False
        elif is_name and token not in ".\n":
            if token[0] in "\"'":
                token = tomllib.loads(f"_={token}")["_"] if is_toml else json.loads(token)
            here = join(here, token)
            if not (is_toml and here in places):
                places[here] = place
    return places
