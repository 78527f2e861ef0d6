"""Figures of the papers, drawn again: one table of them, how each is measured, and what holds."""
