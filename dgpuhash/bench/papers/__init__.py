"""Benchmarks of the papers' tables with their workloads, beside the published figures."""
