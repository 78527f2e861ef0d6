"""Lines of code of a tree: without blank lines, comments and docstrings.

``python tests/code_lines.py`` prints those of each room of the package, and with the path of a
folder those of its rooms.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

__all__ = ["code_lines", "lines_by_room"]

ROOT = Path(__file__).resolve().parents[1]
# Tokens that are no code.
_SILENT = {
    tokenize.COMMENT,
    tokenize.NL,
    tokenize.NEWLINE,
    tokenize.INDENT,
    tokenize.DEDENT,
    tokenize.ENCODING,
    tokenize.ENDMARKER,
}


def code_lines(source: str) -> int:
    """Return the number of lines of `source` that have code.

    A text that stands alone, as a docstring does, is none.

    Examples
    --------
    >>> code_lines('def f():\\n    "What it does."\\n\\n    # why\\n    return (1,\\n    2)')
    3
    """
    texts: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        stands_alone = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if stands_alone and isinstance(node.value.value, str):
            texts.update(range(node.lineno, node.end_lineno + 1))
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type not in _SILENT:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - texts)


def lines_by_room(folder: Path = ROOT / "dgpuhash") -> dict[str, int]:
    """Return the lines of code of each folder and module in `folder`."""
    found: Counter[str] = Counter()
    for path in sorted(folder.rglob("*.py")):
        found[path.relative_to(folder).with_suffix("").parts[0]] += code_lines(path.read_text())
    return dict(found)


if __name__ == "__main__":
    rooms = lines_by_room(*map(Path, sys.argv[1:]))
    for room, lines in sorted(rooms.items(), key=lambda each: -each[1]):
        print(f"{lines:7,} {room}")
    print(f"{sum(rooms.values()):7,}")
