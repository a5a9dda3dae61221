"""A library in the style of RAPIDS cuVS, to import: three families, groups that they share, 119 fragments."""

from pathlib import Path

from tests.support.process import ROOT

#: Its bundled library replaces headers of the toolkit.
TREE = ROOT / "tests" / "support" / "foreign_tree" / "cpp"


def for_nvrtc(directory: Path) -> None:
    """Change imported declarations so that NVRTC compiles them: it has other options than nvcc."""
    for path in directory.glob("*/family.toml"):
        text = path.read_text("utf-8").replace('toolchain = "nvcc"', 'toolchain = "nvrtc"')
        path.write_text(text.replace('"--expt-extended-lambda", "--expt-relaxed-constexpr", ', ""), "utf-8")
