"""Report figures on the terminal, as Markdown and as plots."""

from __future__ import annotations

from dgpuhash.bench.report.document import show_progress, summary, write

__all__ = ["show_progress", "summary", "write"]
