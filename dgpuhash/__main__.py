"""Entry point of `python -m dgpuhash`, the same as the command `dgpuhash`."""

from __future__ import annotations

from dgpuhash.cli import main

if __name__ == "__main__":
    main(prog_name="dgpuhash")
