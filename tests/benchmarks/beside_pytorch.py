"""Which of jitlto's extras pip installs beside which PyTorch, and how much each of them downloads.

pip resolves with the real metadata of PyPI and downloads nothing but that::

    python -m tests.benchmarks.beside_pytorch --output docs/benchmarks/beside_pytorch.json
    python -m tests.benchmarks.beside_pytorch --pages        # writes the tables into the page
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from tests.benchmarks import script
from tests.benchmarks.script import Options, Result
from tests.support.process import ROOT

RECORDED = ROOT / "docs" / "benchmarks" / "beside_pytorch.json"
PAGE = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- beside PyTorch -->\n", "<!-- end of beside PyTorch -->"
#: The newest three releases from PyPI for each CUDA major, and the extras of that major.
TORCH = {"12": ("2.8.0", "2.9.1", "2.10.0"), "13": ("2.13.0", "2.14.1", "2.15.0")}
_SHOWN = ("nvrtc", "nvjitlink", "cuda-bindings")


def resolve(*requirements: str) -> dict[str, dict[str, Any]] | None:
    """Return what pip would install, by name; None if the requirements conflict."""
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "report.json"
        command = [
            sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "--quiet",
            # Reads a wheel's metadata without the wheel: PyTorch's is 0.5 to 0.9 GB.
            "--use-feature=fast-deps", "--report", str(report), *requirements,
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode and "ResolutionImpossible" not in done.stderr:
            raise RuntimeError(done.stderr)
        if done.returncode:
            return None
        return {item["metadata"]["name"]: item for item in json.loads(report.read_text())["install"]}


def size(item: dict[str, Any]) -> int:
    """Bytes that pip downloads for one distribution."""
    url = item["download_info"]["url"]
    if url.startswith("file:"):
        return Path(url2pathname(urlsplit(url).path)).stat().st_size
    with urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=60) as answer:  # noqa: S310 - https
        return int(answer.headers["Content-Length"])


def measure(options: Options) -> Result:
    """Resolve every extra beside every PyTorch, and alone; or write the tables into the page."""
    if options.pages:
        recorded = json.loads(RECORDED.read_text())
        PAGE.write_text(written(PAGE.read_text("utf-8"), recorded), "utf-8")
        return {}
    wheel = build(ROOT, options.place)
    beside: dict[str, dict[str, dict[str, str] | None]] = {}
    alone: dict[str, dict[str, int]] = {}
    for major, releases in TORCH.items():
        for extra in (f"cu{major}-run", f"cu{major}"):
            ours = f"{wheel}[{extra}]"
            found = resolve(ours)
            if found is None:
                raise RuntimeError(f"{extra} does not install alone")
            alone[extra] = {name: size(item) for name, item in sorted(found.items())}
            for release in releases:
                together = resolve(f"torch==={release}", ours)  # and no build of a local index
                print(release, extra, "resolves" if together else "does not resolve", flush=True)
                versions = together and {
                    name: item["metadata"]["version"]
                    for name, item in sorted(together.items())
                    if any(part in name for part in _SHOWN)
                }
                beside.setdefault(release, {})[extra] = versions
    return {"beside": beside, "alone": alone}


def tables(recorded: dict[str, Any]) -> str:
    """Return both tables in Markdown."""
    lines = ["| PyTorch | nvJitLink with it | `jitlto[cuNN-run]` | `jitlto[cuNN]` |", "| --- | --- | --- | --- |"]
    for major, releases in reversed(TORCH.items()):
        for release in reversed(releases):
            run, whole = (recorded["beside"][release][extra] for extra in (f"cu{major}-run", f"cu{major}"))
            linker = next((v for name, v in (run or whole or {}).items() if "nvjitlink" in name), "")
            marks = ["installs" if found else "conflicts" for found in (run, whole)]
            lines.append(f"| {release} (CUDA {major}) | {'.'.join(linker.split('.')[:2])} | {' | '.join(marks)} |")
    lines += ["", "| extra | packages | download |", "| --- | --- | --- |"]
    for extra, sizes in recorded["alone"].items():
        lines.append(f"| `jitlto[{extra}]` | {len(sizes)} | {sum(sizes.values()) / 1e6:.0f} MB |")
    return "\n".join(lines) + "\n"


def written(page: str, recorded: dict[str, Any]) -> str:
    """Return a page with the tables as they were recorded."""
    before, _, rest = page.partition(BEGIN)
    return before + BEGIN + tables(recorded) + rest[rest.index(END) :]


def build(project: Path, output: Path) -> Path:
    """Build a wheel with what is installed."""
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--skip-dependency-check"]
    subprocess.run([*command, "--outdir", str(output), str(project)], check=True, stdout=subprocess.DEVNULL)
    (wheel,) = output.glob("*.whl")
    return wheel


if __name__ == "__main__":
    script.run(__doc__, measure, pages=False)
