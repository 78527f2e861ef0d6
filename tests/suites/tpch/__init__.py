"""TPC-H: queries with `dgpuhash.merge` on Dask frames, which must give what DuckDB gives.

``PYTHONPATH=tests python -m suites.tpch`` runs them.
"""
