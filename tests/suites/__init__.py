"""Other libraries' own tests, run with our verbs in place of theirs.

``make suites`` runs pandas' tests of merges with `dgpuhash.merge`: ``python -m suites``.
"""
