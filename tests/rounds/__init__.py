"""Rounds of faults: a fault breaks into a verb, and the answer is checked.

The verbs are those of an index on real processes. ``scripts/rounds --help`` plays them;
`tests/distributed/test_rounds.py` plays one of each kind. The verb, the victim and the moment of a
round follow from its seed.
"""
