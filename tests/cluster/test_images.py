"""Contents of the image, and validity of the Kubernetes cluster."""

from __future__ import annotations

import fnmatch
import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
SCHEMA = Path(__file__).with_name("daskcluster.schema.json")


def strict(schema: Any) -> Any:
    """Return `schema` with unknown fields refused, which Kubernetes drops."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    kept = {key: strict(part) for key, part in schema.items()}
    if isinstance(kept.get("properties"), dict):
        kept.setdefault("additionalProperties", False)
    return kept


def faults(resource: Any) -> list[str]:
    from jsonschema import Draft202012Validator

    schema = strict(json.loads(SCHEMA.read_text()))
    # Every resource has these, so no schema of one kind speaks of them.
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    return [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(resource)
    ]


@pytest.fixture(params=["kubernetes", "kubernetes-cpu"])
def resource(folder: Path, request: pytest.FixtureRequest) -> dict[str, Any]:
    return yaml.safe_load((folder / f"{request.param}.yaml").read_text())


def containers(resource: dict[str, Any]) -> dict[str, dict[str, Any]]:
    parts = ("scheduler", "worker")
    return {part: resource["spec"][part]["spec"]["containers"][0] for part in parts}


def test_the_operator_takes_the_cluster(resource):
    assert faults(resource) == []
    assert resource["apiVersion"] == "kubernetes.dask.org/v1"
    assert resource["kind"] == "DaskCluster"


def test_a_misspelled_field_is_found(resource):
    containers(resource)["worker"]["volumeMount"] = []
    resource["spec"]["worker"]["replicas"] = "2"
    found = " ".join(sorted(faults(resource)))
    assert "'volumeMount' was unexpected" in found
    assert "'2' is not of type 'integer'" in found


def test_pods_run_scripts_of_the_image(resource, folder):
    dockerfile = (folder / "Dockerfile").read_text()
    (home,) = re.findall(r"^WORKDIR (/opt/.+)", dockerfile, flags=re.MULTILINE)
    for part, container in containers(resource).items():
        script = Path(container["args"][0])
        assert script.parent == Path(home) / "cluster"
        assert script.name == f"{part}.sh"
        assert (folder / script.name).stat().st_mode & 0o111


def test_parts_of_the_cluster_find_each_other(resource):
    name = f"{resource['metadata']['name']}-scheduler"
    service = resource["spec"]["scheduler"]["service"]
    assert service["selector"] == {
        "dask.org/cluster-name": resource["metadata"]["name"],
        "dask.org/component": "scheduler",
    }
    worker, scheduler = containers(resource)["worker"], containers(resource)["scheduler"]
    port = {port["name"]: port["port"] for port in service["ports"]}["tcp-comm"]
    has_gpus = "nvidia.com/gpu" in worker["resources"]["limits"]
    address = f"{'ucx' if has_gpus else 'tcp'}://{name}:{port}"
    # UCX connects to the pod itself.
    assert (service.get("clusterIP") == "None") == has_gpus
    assert worker["args"][1] == address
    assert {"name": "DASK_SCHEDULER_ADDRESS", "value": address} in worker["env"]
    offered = {port["name"]: port["containerPort"] for port in scheduler["ports"]}
    assert [port["targetPort"] for port in service["ports"]] == list(offered)
    assert [port["port"] for port in service["ports"]] == list(offered.values())
    mounts = {mount["name"] for mount in worker["volumeMounts"]}
    assert mounts == {volume["name"] for volume in resource["spec"]["worker"]["spec"]["volumes"]}


def copied(dockerfile: str) -> list[str]:
    """Return the sources of a Dockerfile's COPY commands."""
    lines = re.findall(r"^COPY (?!--from)(.+)", dockerfile, flags=re.MULTILINE)
    return [source for line in lines for source in line.split()[:-1]]


def test_the_image_is_built_from_what_is_there(folder):
    dockerfile = (folder / "Dockerfile").read_text()
    sources = copied(dockerfile)
    patterns = (folder / "Dockerfile.dockerignore").read_text().splitlines()
    let_through = {pattern[1:] for pattern in patterns if pattern.startswith("!")}
    assert set(sources) == let_through
    for source in sources:
        assert (ROOT / source).exists()
    hidden = [pattern.removeprefix("**/") for pattern in patterns if pattern.startswith("**/")]
    tree = [path.name for path in (ROOT / "cluster").iterdir() if path.name != "__pycache__"]
    assert not [name for name in tree for rule in hidden if fnmatch.fnmatch(name, rule)]


def test_the_image_has_what_the_build_needs(folder):
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    sources = set(copied((folder / "Dockerfile").read_text()))
    needed = {settings["project"]["readme"], *settings["project"]["license-files"]}
    needed |= set(settings["tool"]["scikit-build"]["wheel"]["packages"].values())
    assert needed | {"pyproject.toml", "CMakeLists.txt"} <= sources
    (extra,) = re.findall(r"^ARG EXTRA=(.+)", (folder / "Dockerfile").read_text(), flags=re.M)
    assert extra in settings["project"]["optional-dependencies"]


def test_documents_name_files_that_exist(folder):
    text = (folder / "README.md").read_text()
    named = set(re.findall(r"\]\((?:\./)?([^)#:]+)\)", text))
    assert all((folder / name).exists() for name in named)
    started = {path.name for path in folder.iterdir() if path.is_file()}
    assert started - named - {"README.md", "Dockerfile.dockerignore"} == set()
