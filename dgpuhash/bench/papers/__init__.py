"""Benchmarks of the papers' tables: their workloads, beside the papers' or their code's figures."""
