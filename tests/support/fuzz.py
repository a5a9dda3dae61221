"""Fuzzing by coverage, with atheris: ``python -m tests.support.fuzz [--minutes N] [--only TARGET]``
(``pip install atheris``).

Each target of :mod:`tests.support.fuzz_targets` gets its share of the time in a process of its own. An input that
breaks something is kept as ``crash-*`` in the output folder and printed with its traceback; the exit status is then 1.
"""

from __future__ import annotations

import argparse
import json
import logging
import math
import os
import random
import secrets
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path


def main() -> int:
    """Fuzz all targets, or the one asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.support.fuzz", description=__doc__)
    parser.add_argument("--minutes", type=float, default=5.0, help="for all targets together (default: 5)")
    parser.add_argument("--only", metavar="TARGET", help="one target alone")
    parser.add_argument("--output", type=Path, help="where inputs that break something are kept; default: a new folder")
    parser.add_argument("--database", type=Path, action="append", default=[], help="mutate this database too")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    output = options.output or Path(tempfile.mkdtemp(prefix="jitlto-fuzz-"))
    output.mkdir(parents=True, exist_ok=True)
    if options.here:
        fuzz(options.only, round(60 * options.minutes), output.absolute(), options.database)
        return 0
    from tests.support.fuzz_targets import TARGETS

    if options.only and options.only not in TARGETS:
        parser.error(f"--only {options.only}: the targets are {', '.join(TARGETS)}")
    targets = [options.only] if options.only else list(TARGETS)
    failed = []
    rounds = math.ceil(options.minutes / len(targets))
    share = options.minutes / len(targets) / rounds
    for target in targets * rounds:
        command = [sys.executable, "-m", "tests.support.fuzz", "--here", "--only", target, "--minutes", str(share)]
        command += ["--output", str(output.absolute())]
        command += [part for path in options.database for part in ("--database", str(path.absolute()))]
        begin = time.monotonic()
        done = subprocess.run(command, check=False)
        print(f"{target}: status {done.returncode} after {time.monotonic() - begin:.0f} s", flush=True)
        failed += [target] if done.returncode else []
    broken = sorted(path.name for path in output.glob("crash-*"))
    print("\n".join([*broken, f"broken: see {output}"]) if failed or broken else "nothing broke")
    return 1 if failed or broken else 0


def fuzz(target: str, seconds: int, output: Path, databases: list[Path]) -> None:
    """Fuzz one target in this process, which ends with it."""
    import atheris

    logging.getLogger("jitlto").setLevel(logging.CRITICAL)
    directory = Path(tempfile.mkdtemp(prefix=f"jitlto-fuzz-{target}-"))
    os.environ["JITLTO_CACHE_DIR"] = str(directory / "cache")
    with atheris.instrument_imports(include=["jitlto"]):
        from jitlto.base.errors import JitltoError
        from tests.support import families
        from tests.support.fuzz_targets import DOCUMENTS, TARGETS, Ground, changed
    mini = families.built(directory, families.MINI, "mini").database.path
    (directory / "ground").mkdir()
    ground = Ground(directory / "ground", [mini, *databases])
    run, seeds = TARGETS[target]
    (directory / "seeds").mkdir()
    (output / "corpus" / target).mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(seeds(ground)):
        (directory / "seeds" / str(number)).write_bytes(seed)

    seen = set()

    def once(data: bytes) -> None:
        try:
            run(ground, data)
        except JitltoError as error:
            assert error.what.strip()
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
            head, line, tail = (b"j", data[1:], b"") if data[:1] == b"j" else (b"", data, b"")
            if target == "entry":  # two lines of JSON, and bytes
                lines = data.split(b"\n", 2)
                which = chance.randrange(min(2, len(lines)))
                head = b"".join(part + b"\n" for part in lines[:which])
                line, tail = lines[which], b"".join(b"\n" + part for part in lines[which + 1 :])
            try:
                return (head + json.dumps(changed(json.loads(line), chance)).encode() + tail)[:size]
            except (ValueError, RecursionError):
                pass
        return bytes(atheris.Mutate(data, size))

    longest = 40_000 if target in ("records", "ptx", "fatbin", "cubin") else 4000
    arguments = [
        sys.argv[0], f"-max_total_time={seconds}", f"-artifact_prefix={output}/crash-{target}-", f"-max_len={longest}",
        f"-seed={secrets.randbelow(1 << 31) + 1}", "-rss_limit_mb=2048", "-timeout=60", "-print_final_stats=1",
        "-verbosity=0", str(output / "corpus" / target), str(directory / "seeds"),
    ]  # fmt: skip
    atheris.Setup(arguments, once, custom_mutator=mutate)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
