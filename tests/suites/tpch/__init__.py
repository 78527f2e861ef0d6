"""TPC-H: its 22 queries with our merges and groupbys, which must give what DuckDB gives.

``PYTHONPATH=tests python -m suites.tpch`` runs them.
"""
