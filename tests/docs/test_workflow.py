"""The workflow for CI that the documentation offers is one: valid, and its commands do what the guide says."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from jitlto.database import FragmentDatabase
from tests.support.families import MINI, write_family
from tests.support.process import ROOT

WORKFLOW = ROOT / "docs" / "workflows" / "jitlto.yml"
OWN = ROOT / ".github" / "workflows" / "ci.yml"


@pytest.fixture(scope="module")
def workflow() -> dict[str, Any]:
    yaml = pytest.importorskip("ruamel.yaml", reason="ruamel.yaml is not installed; the extra test brings it")
    loaded: dict[str, Any] = yaml.YAML(typ="safe", pure=True).load(WORKFLOW)
    return loaded


@pytest.mark.slow
@pytest.mark.parametrize("path", [WORKFLOW, OWN], ids=lambda path: path.name)
def test_a_workflow_is_valid(path: Path) -> None:
    pytest.importorskip("check_jsonschema", reason="check-jsonschema is not installed; the extra test brings it")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_expression_stands_in_a_script(workflow: dict[str, Any]) -> None:
    """What GitHub puts into a script becomes part of it; values go through the environment."""
    scripts = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    assert scripts
    assert not [script for script in scripts if "${{" in script]


@dataclass
class Runner:
    """As much of a runner as the workflow needs: scripts, expressions, outputs and artifacts."""

    workflow: dict[str, Any]
    directory: Path
    path: str
    settings: dict[str, str] = field(default_factory=dict)  # variables and secrets, by expression
    variables: dict[str, str] = field(default_factory=dict)  # of the environment, beside GitHub's
    files: dict[str, str] = field(default_factory=dict)  # of the repository, beside the family
    artifacts: dict[str, list[Path]] = field(default_factory=dict)
    log: str = ""

    def job(self, name: str, index: int = 0, **context: str) -> dict[str, str]:
        """Run a job's steps in a checkout of its own; returns what it wrote to ``$GITHUB_OUTPUT``."""
        workspace = self.directory / f"{name}-{index}"
        write_family(workspace / "fragments" / "mini", MINI)
        outputs = workspace / "outputs"
        outputs.touch()
        for name_of_file, text in self.files.items():
            (workspace / name_of_file).parent.mkdir(parents=True, exist_ok=True)
            (workspace / name_of_file).write_text(text)
        variables = workspace / "variables"
        variables.touch()
        context |= {"github.workspace": str(workspace), **self.settings}
        environment = {"PATH": self.path, "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(outputs)}
        environment |= {"GITHUB_ENV": str(variables), "RUNNER_TEMP": str(workspace)}
        environment |= {"GITHUB_WORKSPACE": str(workspace), **self.variables}
        for scope in (self.workflow, self.workflow["jobs"][name]):
            for variable, value in scope.get("env", {}).items():
                environment[variable] = evaluate(value, context)
        context |= {f"env.{variable}": value for variable, value in environment.items()}
        for step in self.workflow["jobs"][name]["steps"]:
            if script := step.get("run"):
                if "pip install" not in script:
                    own = {name: evaluate(value, context) for name, value in step.get("env", {}).items()}
                    self.log += run(script, workspace, environment | own)
                    environment |= dict(line.split("=", 1) for line in variables.read_text().splitlines())
            else:
                self.action(step["uses"].partition("@")[0], step.get("with", {}), workspace, context)
        return dict(line.split("=", 1) for line in outputs.read_text().splitlines())

    def action(self, action: str, inputs: dict[str, str], workspace: Path, context: dict[str, str]) -> None:
        if action == "actions/upload-artifact":
            paths = [workspace / line for line in evaluate(inputs["path"], context).split()]
            assert all(path.is_file() for path in paths), paths
            self.artifacts[evaluate(inputs["name"], context)] = paths
        elif action == "actions/download-artifact":
            assert inputs["merge-multiple"]
            (workspace / inputs["path"]).mkdir()
            for name, paths in self.artifacts.items():
                if Path(name).match(inputs["pattern"]):
                    for path in paths:
                        shutil.copy(path, workspace / inputs["path"])
        else:
            assert action in ("actions/checkout", "actions/setup-python", "actions/cache")


def run(script: str, workspace: Path, environment: dict[str, str]) -> str:
    command = ["bash", "-e", "-c", script]  # as GitHub does
    done = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def evaluate(text: str, context: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context.get(match[1], ""), text)


def programs(directory: Path) -> str:
    """Put jitlto's command into a directory; return the path that finds it."""
    if shutil.which("bash") is None:
        pytest.skip("GitHub's runners run scripts with bash, which is not here")
    directory.mkdir()
    program = directory / "jitlto"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m jitlto "$@"\n')
    program.chmod(0o755)
    return os.pathsep.join([str(directory), os.environ.get("PATH", os.defpath)])


def run_all(runner: Runner) -> None:
    """Run every job."""
    for number in range(1, int(runner.workflow["env"]["SHARDS"]) + 1):
        runner.job("build", number, **{"matrix.number": str(number)})
    runner.job("merge")


@pytest.mark.slow
def test_the_workflow_builds_in_shards_what_one_build_gives(
    workflow: dict[str, Any], mini_path: Path, tmp_path: Path
) -> None:
    """Every script of every job is run, each job where it has nothing but its checkout and its artifacts."""
    numbers = workflow["jobs"]["build"]["strategy"]["matrix"]["number"]
    assert numbers == list(range(1, int(workflow["env"]["SHARDS"]) + 1))
    few = workflow | {"env": workflow["env"] | {"SHARDS": "2"}}
    runner = Runner(few, tmp_path, programs(tmp_path / "bin"))
    run_all(runner)
    (merged,) = runner.artifacts["kernels"]
    assert merged.read_bytes() == mini_path.read_bytes()
    with FragmentDatabase(merged) as opened:
        assert opened.part is None


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("ssh-keygen"), reason="ssh-keygen is not installed")
def test_a_pull_request_compiles_and_links_nothing_that_main_has_put_into_the_store(
    workflow: dict[str, Any], tmp_path: Path
) -> None:
    """Main has the environment with the private key; a pull request only reads."""
    workflow = workflow | {"env": workflow["env"] | {"SHARDS": "2"}}
    key = tmp_path / "key"
    command = shlex.join(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)])
    run(command, tmp_path, {"PATH": os.environ.get("PATH", os.defpath)})
    path, store = programs(tmp_path / "bin"), (tmp_path / "store").as_uri()
    signers = {".github/store-signers": key.with_suffix(".pub").read_text()}
    settings = {"vars.JITLTO_STORE": store, "secrets.JITLTO_STORE_KEY": key.read_text()}
    signed = {"JITLTO_STORE_TRUST": "signed"}
    main = Runner(workflow, tmp_path / "main", path, settings, signed, signers)
    run_all(main)
    written = sorted(file for file in (tmp_path / "store").rglob("*") if file.is_file())
    assert written
    settings = {"vars.JITLTO_STORE": f"{store}#read"}
    request = Runner(workflow, tmp_path / "request", path, settings, signed, signers)
    run_all(request)
    assert "none compiled" in request.log
    assert not re.search(r"\b[1-9][0-9]* compiled", request.log)
    assert "as known from an earlier check" in request.log
    assert request.artifacts["kernels"][0].read_bytes() == main.artifacts["kernels"][0].read_bytes()
    assert sorted(file for file in (tmp_path / "store").rglob("*") if file.is_file()) == written
