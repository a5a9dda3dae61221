"""The workflow for CI that the documentation offers is one: valid, and its commands do what the guide says."""

from __future__ import annotations

import json
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

from jitlto.build.pipeline import build
from jitlto.storage import declaration
from jitlto.storage.database import FragmentDatabase
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
    artifacts: dict[str, list[Path]] = field(default_factory=dict)

    def job(self, name: str, index: int = 0, **context: str) -> dict[str, str]:
        """Run a job's steps in a checkout of its own; returns what it wrote to ``$GITHUB_OUTPUT``."""
        workspace = self.directory / f"{name}-{index}"
        write_family(workspace / "fragments" / "mini", MINI)
        outputs = workspace / "outputs"
        outputs.touch()
        context |= {"github.workspace": str(workspace)}
        environment = {"PATH": self.path, "PYTHONPATH": str(ROOT), "GITHUB_OUTPUT": str(outputs)}
        for scope in (self.workflow, self.workflow["jobs"][name]):
            for variable, value in scope.get("env", {}).items():
                environment[variable] = evaluate(value, context)
        context |= {f"env.{variable}": value for variable, value in environment.items()}
        for step in self.workflow["jobs"][name]["steps"]:
            if script := step.get("run"):
                if "pip install" not in script:
                    run(script, workspace, environment)
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


def run(script: str, workspace: Path, environment: dict[str, str]) -> None:
    command = ["bash", "-e", "-c", script]  # as GitHub does
    done = subprocess.run(
        command, cwd=workspace, env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}{done.stderr}"


def evaluate(text: str, context: dict[str, str]) -> str:
    return re.sub(r"\$\{\{ (\S+) \}\}", lambda match: context[match[1]], text)


@pytest.mark.slow
def test_the_workflow_builds_in_shards_what_one_build_gives(workflow: dict[str, Any], tmp_path: Path) -> None:
    """Every script of every job is run, each job where it has nothing but its checkout and its artifacts."""
    if shutil.which("bash") is None:
        pytest.skip("GitHub's runners run scripts with bash, which is not here")
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin" / "jitlto"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m jitlto "$@"\n')
    program.chmod(0o755)
    runner = Runner(workflow, tmp_path, os.pathsep.join([str(tmp_path / "bin"), os.environ.get("PATH", os.defpath)]))
    matrix = json.loads(runner.job("plan")["matrix"])
    assert len(matrix["include"]) == int(workflow["env"]["SHARDS"])
    for index, entry in enumerate(matrix["include"]):
        runner.job("build", index, **{"matrix.shard": entry["shard"], "matrix.number": str(entry["number"])})
    runner.job("merge")
    (merged,) = runner.artifacts["kernels"]
    whole = build([declaration.load_family(write_family(tmp_path / "mini", MINI))], tmp_path / "whole.fragdb")
    assert merged.read_bytes() == whole.path.read_bytes()
    with FragmentDatabase(merged) as opened:
        assert opened.part is None
