"""Fuzzing by coverage, with atheris: ``python -m tests.support.fuzz [--minutes N] [--only TARGET]``
(``pip install atheris``).

Each target of :mod:`tests.support.fuzz_targets` gets its share of the time in a process of its own. An input that
breaks something is kept as ``crash-*`` in the output folder and printed with its traceback; the exit status is then 1.
"""

import argparse
import json
import logging
import os
import random
import secrets
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path


def main() -> int:
    """Fuzz all targets, or the one asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together (default: 5)")
    parser.add_argument("--only", metavar="TARGET", help="one target alone")
    parser.add_argument("--output", type=Path, help="where inputs that break something are kept; default: a new folder")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    output = (options.output or Path(tempfile.mkdtemp(prefix="jitlto-fuzz-"))).absolute()
    output.mkdir(parents=True, exist_ok=True)
    if options.here:
        fuzz(options.only, round(60 * options.minutes), output)
        return 0
    from tests.support.fuzz_targets import TARGETS

    targets = [options.only] if options.only else list(TARGETS)
    failed = []
    for target in targets:
        share = ["--minutes", str(options.minutes / len(targets)), "--output", str(output)]
        command = [sys.executable, "-m", "tests.support.fuzz", "--here", "--only", target, *share]
        failed += [target] if subprocess.run(command, check=False).returncode else []
    broken = sorted(path.name for path in output.glob("crash-*"))
    print("\n".join([*failed, *broken, f"broken: see {output}"]) if failed or broken else "nothing broke")
    return 1 if failed or broken else 0


def fuzz(target: str, seconds: int, output: Path) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    logging.getLogger("jitlto").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix=f"jitlto-fuzz-{target}-"))
    os.environ["JITLTO_CACHE_DIR"] = str(directory / "cache")
    with atheris.instrument_imports(include=["jitlto"]):
        from tests.support import families
        from tests.support.fuzz_targets import DOCUMENTS, TARGETS, Ground, changed, refused
    (directory / "ground").mkdir()
    ground = Ground(directory / "ground", families.built(directory, families.MINI, "mini").database.path)
    run, seeds = TARGETS[target]
    (directory / "seeds").mkdir()
    for number, seed in enumerate(seeds(ground)):
        (directory / "seeds" / str(number)).write_bytes(seed)
    seen = set()

    def once(data: bytes) -> None:
        try:
            refused(lambda: run(ground, data))
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a bug: kept once for each place, and on
            frame = traceback.extract_tb(error.__traceback__)[-1]
            place = f"{target}-{type(error).__name__}-{Path(frame.filename).stem}-{frame.lineno}"
            if place not in seen:
                seen.add(place)
                (output / f"crash-{place}").write_bytes(data)
                traceback.print_exc()

    def mutate(data: bytes, size: int, seed: int) -> bytes:
        chance = random.Random(seed)  # noqa: S311
        if target in DOCUMENTS and chance.random() < 0.8:
            head, line = (b"j", data[1:]) if data[:1] == b"j" else (b"", data)
            try:
                return (head + json.dumps(changed(json.loads(line), chance)).encode())[:size]
            except (ValueError, RecursionError):
                pass
        return bytes(atheris.Mutate(data, size))

    arguments = [
        sys.argv[0], f"-max_total_time={seconds}", f"-artifact_prefix={output}/crash-{target}-", "-max_len=40000",
        f"-seed={secrets.randbelow(1 << 31) + 1}", "-rss_limit_mb=2048", "-timeout=60", "-print_final_stats=1",
        "-verbosity=0", str(directory / "seeds"),
    ]  # fmt: skip
    atheris.Setup(arguments, once, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
