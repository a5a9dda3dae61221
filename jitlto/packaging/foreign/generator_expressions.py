"""CMake's generator expressions, as they evaluate for the CUDA sources of a release build with nvcc on Linux."""

from __future__ import annotations

from collections.abc import Collection

_ONE_OF = {
    "COMPILE_LANGUAGE": "CUDA", "LINK_LANGUAGE": "CUDA", "CUDA_COMPILER_ID": "NVIDIA", "CONFIG": "Release",
    "PLATFORM_ID": "Linux", "CXX_COMPILER_ID": "GNU", "C_COMPILER_ID": "GNU",
}  # fmt: skip
_LITERALS = {"COMMA": ",", "SEMICOLON": ";", "ANGLE-R": ">", "QUOTE": '"'}
_AS_THEY_ARE = {"BUILD_INTERFACE", "BUILD_LOCAL_INTERFACE", "LINK_ONLY", "COMPILE_ONLY", "1", "TARGET_NAME"}


def evaluate(text: str, targets: Collection[str] = ()) -> tuple[list[str], list[str]]:
    """Evaluate the generator expressions of a list.

    Args:
        text: A list, separated by semicolons.
        targets: The targets that exist.

    Returns:
        The elements that are not empty, and the expressions that are not known here; they stand for nothing.
    """
    unknown: list[str] = []
    try:
        value, _ = _text(text, 0, "", targets, unknown)
    except RecursionError:
        return [], [f"{text[:40]}..., which is nested too deeply,"]
    return [element for element in value.split(";") if element], unknown


def _text(text: str, start: int, end: str, targets: Collection[str], unknown: list[str]) -> tuple[str, int]:
    """Evaluate up to one of the characters ``end`` outside of inner expressions; return also where that is."""
    value = ""
    while start < len(text) and text[start] not in end:
        if text.startswith("$<", start):
            inner, start = _expression(text, start + 2, targets, unknown)
            value += inner
        else:
            value += text[start]
            start += 1
    return value, start


def _expression(text: str, start: int, targets: Collection[str], unknown: list[str]) -> tuple[str, int]:
    name, place = _text(text, start, ":>", targets, unknown)
    arguments: list[str] = []
    # A condition's content may have commas; other expressions take arguments.
    is_content = name in _AS_THEY_ARE or name in ("0", "INSTALL_INTERFACE", "BOOL", "NOT")
    while place < len(text) and text[place] != ">":
        argument, place = _text(text, place + 1, ">" if is_content else ",>", targets, unknown)
        arguments.append(argument)
    value = _value(name, arguments, targets)
    if value is None:
        unknown.append(f"$<{text[start:place]}>")
    return value or "", place + 1


def _value(name: str, arguments: list[str], targets: Collection[str]) -> str | None:
    if name in _LITERALS:
        return _LITERALS[name]
    if name in _AS_THEY_ARE:
        return arguments[0] if arguments else ""
    if name in ("0", "INSTALL_INTERFACE"):
        return ""
    if name in _ONE_OF:
        return _ONE_OF[name] if not arguments else _truth(_ONE_OF[name] in arguments)
    if name == "COMPILE_LANG_AND_ID":
        return _truth(arguments[:1] == ["CUDA"] and "NVIDIA" in arguments)
    if name in ("AND", "OR"):
        return _truth((all if name == "AND" else any)(argument == "1" for argument in arguments))
    if len(arguments) == 1:
        return _of_one(name, arguments[0], targets)
    if name in ("STREQUAL", "EQUAL") and len(arguments) == 2:
        return _truth(arguments[0] == arguments[1])
    if name == "IF" and len(arguments) == 3:
        return arguments[1] if arguments[0] == "1" else arguments[2]
    return None


def _of_one(name: str, argument: str, targets: Collection[str]) -> str | None:
    if name == "NOT":
        return _truth(argument == "0")
    if name == "BOOL":
        is_false = argument.upper() in ("", "0", "FALSE", "OFF", "N", "NO", "IGNORE", "NOTFOUND")
        return _truth(not is_false and not argument.upper().endswith("-NOTFOUND"))
    if name == "TARGET_EXISTS":
        return _truth(argument in targets)
    if name == "TARGET_NAME_IF_EXISTS":
        return argument if argument in targets else ""
    return {"LOWER_CASE": argument.lower(), "UPPER_CASE": argument.upper()}.get(name)


def _truth(value: bool) -> str:
    return "1" if value else "0"
