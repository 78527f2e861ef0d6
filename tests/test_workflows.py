"""Workflows of GitHub: they call make alone, and actions of a version."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), flags=re.M)


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text())["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


def test_there_are_workflows():
    assert {path.stem for path in WORKFLOWS} == {"ci", "docs", "nightly", "release"}


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_what_runs_is_a_target_of_make(workflow):
    commands = [step["run"] for step in steps(workflow) if "run" in step]
    for command in commands:
        program, *words = command.split()
        assert program == "make", command
        # What others choose, such as names of branches, is no part of a command.
        assert "${{" not in command
        targets = [word for word in words if "=" not in word]
        assert targets, command
        assert set(targets) <= set(TARGETS), command
    for step in steps(workflow):
        assert "run" in step or re.search(r"@(v\d+|release/v\d+)$", step["uses"]), step


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_github_would_take_it(workflow):
    done = subprocess.run(
        [
            sys.executable, "-m", "check_jsonschema", "--builtin-schema",
            "vendor.github-workflows", workflow,
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_python_is_tested():
    classifiers = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["classifiers"]
    named = [each.rpartition(" ")[2] for each in classifiers if re.search(r":: 3\.\d+$", each)]
    ci = yaml.safe_load((ROOT / ".github" / "workflows" / "ci.yml").read_text())
    assert ci["jobs"]["test"]["strategy"]["matrix"]["python"] == named


def test_the_oldest_dask_is_tested():
    text = (ROOT / ".github" / "workflows" / "ci.yml").read_text()
    needs = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    (oldest,) = (need.partition(">=")[2] for need in needs if need.startswith("distributed"))
    assert f"dask=={oldest} distributed=={oldest}" in text


@pytest.mark.parametrize(
    ("tag", "said"),
    [("", ""), ("v0.0.7", "the tag v0.0.7 says 0.0.7"), ("v0.1.0", "CHANGELOG.md says none")],
)
def test_a_release_has_one_version(tag, said):
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "wheels" / "version.py", *filter(None, [tag])],
        capture_output=True, text=True,
    )  # fmt: skip
    assert (done.returncode == 0) == (not said)
    assert said in done.stderr


def test_a_release_is_told_in_few_bullets():
    _, *releases = re.split(r"^## ", (ROOT / "CHANGELOG.md").read_text(), flags=re.M)
    assert releases
    assert all(len(re.findall(r"^- ", each, flags=re.M)) <= 60 for each in releases)


@pytest.mark.parametrize(
    "form", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml")), ids=lambda path: path.stem
)
def test_github_would_take_the_form(form):
    kind = "issue-config" if form.stem == "config" else "issue-forms"
    done = subprocess.run(
        [
            sys.executable, "-m", "check_jsonschema", "--builtin-schema",
            f"vendor.github-{kind}", form,
        ],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_conda_recipe_needs_what_the_package_needs():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text())
    wanted = [need for need in recipe["requirements"]["run"] if isinstance(need, str)]
    named = {need.replace("[dataframe]", "") for need in settings["dependencies"]}
    assert {need.replace(" ", "") for need in wanted} - {"python"} == named
    assert recipe["context"]["version"] == settings["version"]
    variants = yaml.safe_load((ROOT / "conda" / "variants.yaml").read_text())
    pythons = [each for each in settings["classifiers"] if " :: 3." in each]
    assert variants["python"] == [each.rpartition(" ")[2] for each in pythons]
