"""Say which version this is, and fail where a place tells another: ``python version.py [TAG]``."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def told(tag: str) -> dict[str, str]:
    """Return the version that each place tells."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (cited,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), flags=re.M)
    found = {"pyproject.toml": settings["project"]["version"], "CITATION.cff": cited}
    if tag:
        found[f"the tag {tag}"] = tag.removeprefix("v")
        # A version that is published has its own heading; what comes next stands above.
        changes = (ROOT / "CHANGELOG.md").read_text()
        heading = re.search(r"^## \[(\d\S*)\] - \d{4}-\d\d-\d\d$", changes, flags=re.M)
        found["CHANGELOG.md"] = heading[1] if heading else "none: it has no heading with a date"
    return found


def main(tag: str) -> None:
    """Print the version, or what each place tells."""
    versions = told(tag)
    if len(set(versions.values())) > 1:
        sys.exit("\n".join(f"{place} says {version}" for place, version in versions.items()))
    print(versions["pyproject.toml"])


if __name__ == "__main__":
    main("".join(sys.argv[1:]))
