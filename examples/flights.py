"""The main job on real data: 336,776 flights joined with indexes of planes, weather and airlines.

The program is the package dgpuhash.demo (flights.py there is the part to read); `dgpuhash demo` and
`make demo` run it too.
"""

import argparse
import sys

from dgpuhash.demo import run

if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--workers", type=int, help="worker processes")
    sys.exit(run(parser.parse_args().workers))
