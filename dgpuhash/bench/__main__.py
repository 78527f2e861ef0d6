"""``python -m dgpuhash.bench tables``: the benchmarks from a command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from dgpuhash.bench import BENCHES, run
from dgpuhash.errors import DgpuhashError

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark that `arguments` (by default the process's own) name; the exit status."""
    parser = argparse.ArgumentParser(
        prog="dgpuhash bench",
        description="Measures this machine: its limits, or the tables beside those limits.",
    )
    parser.add_argument("name", choices=sorted(BENCHES))
    parser.add_argument(
        "--device", choices=("cpu", "cuda"), help="default: a GPU where there is one"
    )
    parser.add_argument("--json", dest="json_path", help="file for the figures, one JSON a line")
    parser.add_argument("--repeats", type=int, default=5, help="runs whose median counts")
    parser.add_argument("--sizes", type=int, nargs="+", help="tables: numbers of pairs")
    parser.add_argument("--bits", type=int, nargs="+", choices=(32, 64), help="tables: key widths")
    parser.add_argument("--loads", type=float, nargs="+", help="tables: shares of slots in use")
    parser.add_argument("--n", type=int, help="limits: random accesses in one launch")
    parser.add_argument("--footprints", type=int, nargs="+", help="limits: bytes that they span")
    options = vars(parser.parse_args(arguments))
    given = {name: value for name, value in options.items() if value is not None}
    foreign = {"n", "footprints"} if given["name"] == "tables" else {"sizes", "bits", "loads"}
    if wrong := sorted(foreign & given.keys()):
        parser.error(f"'{given['name']}' takes no --{wrong[0]}")
    try:
        run(given.pop("name"), **given)
    except DgpuhashError as error:
        print(f"dgpuhash bench: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
