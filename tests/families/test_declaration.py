"""``family.toml``: its declarations, the search for its files, and the error for each mistake."""

from pathlib import Path

import pytest

from jitlto.base.diagnostic import Location
from jitlto.base.errors import FamilyError, MatrixError
from jitlto.base.versions import Architecture
from jitlto.compile.headers import HeaderSearch
from jitlto.families import declaration
from jitlto.record.fragment import Role
from jitlto.record.options import LinkOptions
from tests.support.errors import raises
from tests.support.families import MINI, write_family

TOML = MINI["family.toml"]


def load(directory: Path, toml: str, **files: str) -> declaration.FamilyDeclaration:
    return declaration.load_family(write_family(directory, MINI | {"family.toml": toml} | files))


def failure(directory: Path, toml: str) -> FamilyError:
    with pytest.raises(FamilyError) as caught:
        load(directory, toml)
    assert str(directory / "family.toml") in str(caught.value.where)
    return caught.value


def test_a_family_as_declared(tmp_path: Path) -> None:
    declared = load(
        tmp_path,
        TOML.replace('name = "mini"', 'name = "mini"\nstd = "c++20"\narchs = ["90a", "75", "80"]\noptions = ["-DN=1"]')
        + '\n[link]\nfast_math = true\nptxas = ["-v"]\n',
    )
    assert declared.name == "mini"
    assert declared.path == tmp_path / "family.toml"
    assert declared.architectures == (Architecture(75), Architecture(80), Architecture(90, "a"))
    arithmetic = ("--use_fast_math", "--ftz=true", "--prec-div=false", "--prec-sqrt=false", "--fmad=true")
    assert declared.compiler_options() == ("--std=c++20", *arithmetic, "-DN=1")
    assert declared.link == LinkOptions(fast_math=True, ptxas=("-v",))
    assert declared.include == (tmp_path / ".",)
    assert declared.interfaces == ("op.cuh",)
    kern, op = declared.groups
    assert (kern.name, kern.role, kern.key) == ("kern", Role.ENTRYPOINT, ("data_type",))
    assert kern.params == ("{{data_type}}* x", "unsigned n")
    assert (kern.matrix, kern.template) == (tmp_path / "kern.json", tmp_path / "kern.cu.jinja")
    assert (op.name, op.role, op.interface, op.syntax) == ("op", Role.DEVICE, "op.cuh", "jinja")


def test_a_group_that_callers_supply(tmp_path: Path) -> None:
    toml = TOML + '\n[device.user]\nsupplied = true\ninterface = "op.cuh"\n'
    group = load(tmp_path, toml).groups[-1]
    assert (group.name, group.matrix, group.template, group.interface) == ("user", None, None, "op.cuh")


def test_files_are_looked_for_beside_then_under_matrices_and_templates(tmp_path: Path) -> None:
    top = tmp_path / "fragments" / "mini"
    write_family(top, {"family.toml": TOML, "op.cuh": "", "op.json": "", "kern.cu.jinja": ""})
    write_family(tmp_path / "matrices", {"kern.json": "", "op.json": ""})
    write_family(tmp_path / "templates", {"op.cu.jinja": "", "kern.cu.jinja": ""})
    kern, op = declaration.load_family(top / "family.toml").groups
    assert kern.matrix == tmp_path / "matrices" / "kern.json"
    assert kern.template == top / "kern.cu.jinja"
    assert op.matrix == top / "op.json"
    assert op.template == tmp_path / "templates" / "op.cu.jinja"


def test_what_is_not_said_is_taken_from_names(tmp_path: Path) -> None:
    toml = TOML[TOML.index("[entrypoint") :]
    for line in ('matrix = "kern.json"', 'template = "kern.cu.jinja"', 'matrix = "op.json"', 'interface = "op.cuh"'):
        toml = toml.replace(f"{line}\n", "")
    path = write_family(tmp_path / "mini", MINI | {"family.toml": toml})
    assert declaration.load_family(path) == load(tmp_path / "mini", TOML)
    kern = write_family(tmp_path / "fragments" / "mini", {"family.toml": "[entrypoint.kern]\n"})
    files = {"matrices/mini/kern.json": '{"n": ["1", "2"], "type": "int", "m": ["3", "4"]}'}
    write_family(tmp_path, files | {"templates/mini/kern.cu.jinja": ""})
    (group,) = declaration.load_family(kern).groups
    assert (group.key, group.matrix) == (("m", "n", "type"), tmp_path / "matrices" / "mini" / "kern.json")
    with raises(FamilyError, "family-invalid-value", "'a b'", hint="directory"):
        load(tmp_path / "a b", toml)


def test_a_matrix_may_stand_in_the_table(tmp_path: Path) -> None:
    inline = TOML.replace('"kern.json"', '{data_type = [\n  "float",\n  "double",\n]}')
    kern, other = (load(tmp_path, toml).groups[0] for toml in (inline, TOML))
    assert [*declaration.read_matrix(kern).combinations()] == [*declaration.read_matrix(other).combinations()]
    where = "family.toml:8:3 in [entrypoint.kern] (/data_type/1)"
    with raises(MatrixError, "matrix-not-a-string", where=where):
        declaration.read_matrix(load(tmp_path, inline.replace('"double"', "4")).groups[0])


def test_families_are_found_by_name_directory_and_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_family(tmp_path / "fragments" / "mine", MINI)
    monkeypatch.chdir(tmp_path)
    assert declaration.find_family("mine").resolve() == path
    assert declaration.find_family(path.parent) == path
    assert declaration.find_family(path) == path
    assert {"mine", "search", "transform"} <= set(declaration.list_families())


def test_an_unknown_family_is_an_error_with_the_nearest_name() -> None:
    with raises(FamilyError, "family-not-found", "'serch'", hint="did you mean 'search'?"):
        declaration.find_family("serch")


# (what is replaced, by what, the table that the error names, its case, what it names, a word of the hint)
MISTAKES = [
    ("[family]", "[famly]", "", "unknown-key", "'famly'", "did you mean 'family'?"),
    ('name = "mini"', "name = 3", "family", "invalid-value", "name", None),
    ('name = "mini"', 'name = "a b"', "family", "invalid-value", "'a b'", None),
    (
        'name = "mini"',
        'name = "mini"\nincldue = ["."]',
        "family",
        "unknown-key",
        "'incldue'",
        "did you mean 'include'?",
    ),
    ('name = "mini"', 'name = "mini"\ninclude = "."', "family", "invalid-value", "include", None),
    ('name = "mini"', 'name = "mini"\ninclude = [1]', "family", "invalid-value", "include[0]", None),
    ('name = "mini"', 'name = "mini"\ninclude = ["no"]', "family", "missing-file", "'no'", "relative"),
    ('name = "mini"', 'name = "mini"\ntemplates = ["no"]', "family", "missing-file", "'no'", "relative"),
    ('name = "mini"', 'name = "mini"\nstd = 17', "family", "invalid-value", "std", None),
    ('name = "mini"', 'name = "mini"\nstd = 1979-05-27', "family", "invalid-value", "std", None),
    ('name = "mini"', 'name = "mini"\narchs = []', "family", "invalid-value", "archs", "75"),
    ('name = "mini"', 'name = "mini"\narchs = [75]', "family", "invalid-value", "archs[0]", "quotes"),
    (
        'name = "mini"',
        'name = "mini"\narchs = "90"',
        "family",
        "invalid-value",
        "archs '90'",
        '"auto" or a list: ["90"]',
    ),
    ('name = "mini"', 'name = "mini"\narchs = ["auto"]', "family", "invalid-value", "'auto'", None),
    ('name = "mini"', 'name = "mini"\narchs = ["sm_x"]', "family", "invalid-value", "'sm_x'", "sm_90"),
    (
        'name = "mini"',
        'name = "mini"\ntoolchain = "gcc"',
        "family",
        "invalid-value",
        "toolchain 'gcc'",
        '"nvrtc" or "nvcc"',
    ),
    ('name = "mini"', 'name = "mini"\nimages = ["ptx"]', "family", "invalid-value", "images ['ptx']", "ltoir"),
    ('name = "mini"', 'name = "mini"\nsass_registers = 8', "family", "invalid-value", "sass_registers", None),
    ('name = "mini"', 'name = "mini"\nsass_registers = 64', "family", "invalid-value", "sass_registers", "sass ="),
    ("[device.op]", "[link]\ntiered = true\n[device.op]", "link", "invalid-value", "tiered", "sass ="),
    ("[device.op]", "[device.op]\nsass_registers = 64", "device.op", "invalid-value", "sass_registers", "sass ="),
    ('name = "mini"', 'name = "mini"\nsass = ["9"]', "family", "invalid-value", "invalid sass", None),
    ('name = "mini"', 'name = "mini"\nimages = ["sass"]', "family", "invalid-value", "images ['sass']", "ltoir"),
    (
        'name = "mini"',
        'name = "mini"\nsyntax = "mako"',
        "family",
        "invalid-value",
        "syntax 'mako'",
        '"jinja" or "cmake"',
    ),
    ("[entrypoint.kern]", "[device.kern]", "device.kern", "unknown-key", "params", None),
    ("[entrypoint.kern]", '["entrypoint"."a b"]', "entrypoint.a b", "invalid-value", "'a b'", None),
    ("[entrypoint.kern]", "[entrypont.kern]", "", "unknown-key", "'entrypont'", "did you mean 'entrypoint'?"),
    (
        "[entrypoint.kern]",
        "[entrypoint]\nkern = 3\n[entrypoint.other]",
        "entrypoint",
        "missing-table",
        "entrypoint.kern",
        None,
    ),
    ("[device.op]", "[device.kern]", "device.kern", "duplicate-group", "'kern'", None),
    ('matrix = "kern.json"', "matrix = 3", "entrypoint.kern", "invalid-value", "matrix", None),
    ('matrix = "kern.json"', 'matrix = "no.json"', "entrypoint.kern", "missing-file", "matrix 'no.json'", "looked for"),
    ('matrix = "kern.json"', 'matrix = ""', "entrypoint.kern", "missing-file", "matrix ''", "looked for"),
    ('matrix = "kern.json"', f'matrix = "{"x" * 300}"', "entrypoint.kern", "missing-file", "matrix", "looked for"),
    ('template = "op.cu.jinja"', 'template = "."', "device.op", "missing-file", "template '.'", "looked for"),
    ('key = ["data_type"]', 'keys = ["data_type"]', "entrypoint.kern", "unknown-key", "'keys'", "did you mean 'key'?"),
    ('key = ["data_type"]', 'key = "data_type"', "entrypoint.kern", "invalid-value", "key", None),
    ('key = ["data_type"]', 'key = ["arch"]', "entrypoint.kern", "invalid-value", "'arch'", "link_mode"),
    ('key = ["data_type"]', 'key = ["a", "a"]', "entrypoint.kern", "invalid-value", "'a'", None),
    ('key = ["data_type"]', 'key = ["a b"]', "entrypoint.kern", "invalid-value", "'a b'", None),
    ("params = [", "params = [1, ", "entrypoint.kern", "invalid-value", "params[0]", None),
    ('interface = "op.cuh"', "interface = 1", "device.op", "invalid-value", "interface", None),
    ('interface = "op.cuh"', 'interface = "/op.cuh"', "device.op", "interface", "'/op.cuh'", "relative"),
    ('interface = "op.cuh"', "interface = 'o\"p.cuh'", "device.op", "interface", "p.cuh", "rename"),
    ('interface = "op.cuh"', "entry = 'x'", "device.op", "unknown-key", "entry", None),
    ('interface = "op.cuh"', "[device.user]", "device.user", "missing-file", "'user.cu.jinja'", "supplied = true"),
    (
        "[device.op]",
        "[device.op]\nbinary = 'op.bin'",
        "device.op",
        "unknown-key",
        "with binary has no key 'template'",
        None,
    ),
    ("[device.op]", "[device.op]\nbinary = ''", "device.op", "invalid-value", "binary", None),
    ("[device.op]", "[device.op]\nsupplied = false", "device.op", "invalid-value", "supplied False", "write true"),
    (
        "[device.op]",
        "[device.op]\ninstantiate = 'f'",
        "device.op",
        "unknown-key",
        "has no key 'instantiate'",
        None,
    ),
    (
        'template = "kern.cu.jinja"',
        'instantiate = "kern<{{data_type}}>"',
        "entrypoint.kern",
        "missing-file",
        "header 'kern.cuh'",
        "looked for",
    ),
    ('interface = "op.cuh"', "[device.user]\nsupplied = true", "device.user", "missing-key", "'interface'", "header"),
    ("[device.op]", "[device.op]\nsupplied = true", "device.op", "unknown-key", "'matrix'", None),
    ('template = "kern.cu.jinja"', "supplied = true", "entrypoint.kern", "unknown-key", "'supplied'", None),
    (
        "[device.op]",
        "[link]\nfastmath = true\n[device.op]",
        "link",
        "link-option",
        "'fastmath'",
        "did you mean 'fast_math'?",
    ),
    ("[device.op]", "[link]\nmax_registers = '64'\n[device.op]", "link", "link-option", "max_registers", None),
    ("[device.op]", "[link]\nmax_registers = 4294967296\n[device.op]", "link", "link-option", "max_registers", None),
    ("[device.op]", "[link]\ndebug = true\n[device.op]", "link", "link-option", "debug", "lineinfo"),
    ("[family]", "link = 3\n[family]", "", "missing-table", "link", None),
]


@pytest.mark.slow
@pytest.mark.parametrize(("old", "new", "table", "case", "name", "hint"), MISTAKES)
def test_each_mistake_names_file_and_table(
    tmp_path: Path, old: str, new: str, table: str, case: str, name: str, hint: str | None
) -> None:
    assert TOML.count(old) == 1
    error = failure(tmp_path, TOML.replace(old, new))
    assert error.code == f"family-{case}", error
    assert isinstance(error.place, Location)
    assert (error.place.path, error.place.about) == (str(tmp_path / "family.toml"), f"in [{table}]" if table else "")
    assert name in error.what
    assert hint is None or hint in str(error.hint)


def test_a_missing_file_is_answered_with_the_places_looked_in(tmp_path: Path) -> None:
    path = write_family(tmp_path / "fragments" / "mini", MINI | {"family.toml": TOML.replace('"op.json"', '"no.json"')})
    with pytest.raises(FamilyError) as caught:
        declaration.load_family(path)
    assert str(path.parent / "no.json") in str(caught.value.hint)
    assert str(tmp_path / "matrices" / "no.json") in str(caught.value.hint)
    (tmp_path / "matrices" / "other").mkdir(parents=True)
    (tmp_path / "matrices" / "other" / "no.json").touch()
    with raises(FamilyError, "family-missing-file", hint="did you mean 'other/no.json'?"):
        declaration.load_family(path)


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("-maxrregcount=32", "max_registers"), ("--maxrregcount=32", "max_registers"),
        ("--maxrregcount 32", "max_registers"), ("--use_fast_math", "fast_math"), ("-ftz=true", "ftz"),
        ("--prec-div=false", "prec_div"), ("--fmad=false", "fma"), ("-Xptxas=-v", "ptxas"), ("-Xptxas -v", "ptxas"),
        ("-lineinfo", "lineinfo"), ("-O3", "optimization"),
    ],
)  # fmt: skip
def test_options_of_the_link_are_refused_at_the_compile(tmp_path: Path, option: str, instead: str) -> None:
    error = failure(tmp_path, TOML.replace('name = "mini"', f'name = "mini"\noptions = ["{option}"]'))
    assert str(error.where).endswith("[family]")
    assert error.code == "family-option"
    assert option in error.what
    assert f"declare {instead} under [link]" in (error.hint or "")


@pytest.mark.parametrize(
    "option",
    ["-G", "--device-debug", "-arch=sm_90", "--gpu-architecture=sm_90", "-I/usr/include", "-I", "--include-path=x",
     "--std=c++20", "-std=c++20", "--std c++20", "-dlto", "-rdc=false", "value"],
)  # fmt: skip
def test_options_that_jitlto_sets_itself_are_refused(tmp_path: Path, option: str) -> None:
    error = failure(tmp_path, TOML.replace('name = "mini"', f'name = "mini"\noptions = ["{option}"]'))
    assert str(error.where).endswith("[family]")
    assert error.code == "family-option"
    assert option in error.what


def test_options_of_a_group_come_after_those_of_its_family(tmp_path: Path) -> None:
    toml = TOML.replace('name = "mini"', 'name = "mini"\noptions = ["-DN=1"]').replace(
        "[device.op]", '[device.op]\noptions = ["-DM=2"]'
    )
    declared = load(tmp_path, toml)
    kern, op = declared.groups
    assert declared.compiler_options(op) == ("--std=c++17", "-DN=1", "-DM=2")
    assert declared.compiler_options(kern) == declared.compiler_options() == ("--std=c++17", "-DN=1")


def test_options_of_ptxas_are_those_of_cubins_and_of_no_other_images(tmp_path: Path) -> None:
    toml = TOML.replace('name = "mini"', 'name = "mini"\nsass = ["90"]\nsass_registers = 64')
    declared = load(tmp_path, toml.replace("[device.op]", "[device.op]\nsass_registers = 32"))
    kern, op = declared.groups
    assert [declared.cubin_options(group) for group in (kern, op)] == [("--maxrregcount=64",), ("--maxrregcount=32",)]
    linked = load(tmp_path, f'{toml}\n[link]\nptxas = ["-dlcm=cg"]\n')
    assert linked.cubin_options(kern) == ("-dlcm=cg", "--maxrregcount=64")
    assert load(tmp_path, f'{TOML}\n[link]\nptxas = ["-dlcm=cg"]\n').cubin_options(kern) == ()
    assert declared.compiler_options(op) == ("--std=c++17",)
    assert declared.without_cubins() == load(tmp_path, TOML)


@pytest.mark.parametrize("line", ['options = ["-DN=1"]', "link = {max_registers = 8}"])
def test_a_group_that_callers_supply_has_no_options(tmp_path: Path, line: str) -> None:
    error = failure(tmp_path, f'{TOML}\n[device.user]\nsupplied = true\ninterface = "op.cuh"\n{line}\n')
    assert (error.code, "[device.user]" in str(error.where)) == ("family-unknown-key", True)


def test_a_family_without_a_kernel_is_refused(tmp_path: Path) -> None:
    assert failure(tmp_path, '[family]\nname = "x"\n').code == "family-no-entrypoint"
    assert failure(tmp_path, "").code == "family-no-entrypoint"


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    for path in (tmp_path / "none.toml", tmp_path):
        with raises(FamilyError, "family-unreadable", hint="check the path") as caught:
            declaration.load_family(path)
        assert caught.value.where == str(path)
        assert "Errno" not in str(caught.value)
        assert str(caught.value).count(str(path)) == 1
    (tmp_path / "latin.toml").write_bytes(b"# caf\xe9\n")
    with raises(FamilyError, "family-unreadable", hint="save the file as UTF-8"):
        declaration.load_family(tmp_path / "latin.toml")


def test_a_family_may_be_used_in_very_many_ways(tmp_path: Path) -> None:
    for number in range(50):
        (tmp_path / str(number)).mkdir()
        text = f'[family]\nname = "f{number}"\n[device.d{number}]\nsupplied = true\ninterface = "d.cuh"\n'
        next_two = range(number + 1, min(number + 3, 50))
        text += "[use]\n" + "".join(f'f{used} = "../{used}"\n' for used in next_two)
        (tmp_path / str(number) / "family.toml").write_text(text)
    family = declaration.load_family(tmp_path / "0" / "family.toml")  # its last one in 10,000,000,000 ways
    assert [*family.all_used()] == [f"f{number}" for number in range(49, 0, -1)]
    assert family.interfaces == ("d.cuh",)


# --- paths ---


def test_paths_have_no_way_back_in_them(tmp_path: Path) -> None:
    """Messages name files by them."""
    toml = TOML.replace('"mini"\n', '"mini"\ninclude = ["../mini/../mini/.", "../other"]\n', 1)
    write_family(tmp_path / "mini", MINI | {"family.toml": toml.replace('"kern.json"', '"../other/kern.json"')})
    write_family(tmp_path / "other", {"kern.json": "{}", "sub/x.cuh": ""})
    declared = declaration.load_family(tmp_path / "other" / "sub" / ".." / ".." / "mini" / "family.toml")
    kern = next(group for group in declared.groups if group.name == "kern")
    assert (declared.path, kern.matrix) == (tmp_path / "mini" / "family.toml", tmp_path / "other" / "kern.json")
    assert declared.include == (tmp_path / "mini", tmp_path / "other")
    assert HeaderSearch(declared.include).path("sub/../sub/x.cuh") == tmp_path / "other" / "sub" / "x.cuh"
    with raises(FamilyError, "family-missing-file", hint=f"looked for {tmp_path}/no.json"):
        load(tmp_path / "mini", TOML.replace('"kern.json"', '"../no.json"'))


def test_a_way_back_through_a_link_stays_as_it_is(tmp_path: Path) -> None:
    """Without it the path would lead elsewhere."""
    write_family(tmp_path / "real" / "mini", MINI | {"family.toml": TOML.replace('"kern.json"', '"../kern.json"')})
    write_family(tmp_path / "real", {"kern.json": "{}"})
    write_family(tmp_path, {"kern.json": "other"})
    (tmp_path / "mini").symlink_to(tmp_path / "real" / "mini")
    declared = declaration.load_family(tmp_path / "mini" / "family.toml")
    matrix = next(group.matrix for group in declared.groups if group.name == "kern")
    assert matrix
    assert matrix.read_text() == "{}"
