"""Generated frames of every key dtype, merged and grouped beside pandas, Dask and plain Python.

``make suites`` runs 10,000 of them: ``python -m suites.generated``.
"""
