"""Rounds of faults: something breaks while an index works on real processes; was the answer right?

``scripts/rounds --help`` plays them; `tests/distributed/test_rounds.py` plays one of each kind. The
verb, the victim and the moment of a round follow from its seed.
"""
