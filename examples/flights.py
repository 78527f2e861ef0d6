"""The main job on real data: 336,776 flights joined with indexes of planes, weather and airlines.

The program is the package dgpuhash.demo (flights.py there is the part to read); `dgpuhash demo` and
`make demo` run it too.
"""

import sys

from dgpuhash.demo import run

if __name__ == "__main__":
    sys.exit(run())
