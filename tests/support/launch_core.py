"""The compiled core of launches, built for the tests from the source as it stands."""

import os
import shutil
import sysconfig
from functools import cache
from importlib.machinery import ExtensionFileLoader
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jitlto.base.files import temporary_directory
from jitlto.launch import core as core_module
from jitlto.launch import dispatcher
from jitlto.packaging.hooks.extension import SOURCE, ExtensionError, compile_extension
from jitlto.runtime.family import KernelFamily
from jitlto.tuning import best
from tests.support.process import ROOT

#: The core, compiled by another process: one for a run under a sanitizer.
COMPILED = "JITLTO_TEST_CORE"
NAME = "jitlto.launch._launch"
#: Quickly, with the assertions of Python's headers, and warnings as errors.
WARNINGS = ("-O1", "-UNDEBUG", "-Wall", "-Wextra", "-Wno-missing-field-initializers", "-Werror")


@cache
def core() -> ModuleType:
    """Build it, unless another process has, and load it; skips where there is no C compiler."""
    with temporary_directory("jitlto-test-") as directory:
        path = Path(os.environ.get(COMPILED) or build(Path(directory), *WARNINGS))
        spec = spec_from_file_location(NAME, path, loader=ExtensionFileLoader(NAME, str(path)))
        assert spec is not None
        module = module_from_spec(spec)
        assert spec.loader is not None
        spec.loader.exec_module(module)
    return module


def compiler() -> str:
    """The command of the interpreter's C compiler."""
    return (os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc").split()[0]


def build(directory: Path, *flags: str) -> Path:
    """Build it into a directory; skips where there is no C compiler."""
    if shutil.which(compiler()) is None:
        pytest.skip(f"there is no C compiler ({compiler()})")
    try:
        return compile_extension(ROOT / SOURCE, directory, flags)
    except ExtensionError as error:
        if "Python.h" in str(error).partition("\n")[0] and "there is no" in str(error):
            pytest.skip(str(error))
        raise


def use(monkeypatch: pytest.MonkeyPatch, core: ModuleType | None) -> None:
    """Have families, and whatever chooses launchers, ask a core, or none, if they are made from now on."""
    monkeypatch.setattr(core_module, "extension", lambda: core)
    for owner, name in (
        (KernelFamily, "launcher"),
        (plain_class(dispatcher.Dispatcher), "__call__"),
        (plain_class(best.Chooser), "__call__"),
    ):
        own = vars(owner)
        made = core_module.remembered(own.get(f"_ask_{name}", own[name]).__wrapped__)
        monkeypatch.setattr(owner, name, made)
        if owner is KernelFamily and core is not None:
            monkeypatch.setattr(owner, f"_ask_{name}", made, raising=False)
            monkeypatch.setattr(owner, name, core.make_lookup(owner, ""))
    for module, name in ((dispatcher, "Dispatcher"), (best, "Chooser")):
        monkeypatch.setattr(module, name, core_module.called(plain_class(getattr(module, name))))


def plain_class(cls: type) -> Any:
    """The class of Python below which the core has made a class, or the class itself."""
    return cls.__base__ if hasattr(cls, "_quick") else cls
