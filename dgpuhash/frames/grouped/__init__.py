"""Incremental aggregation: add rows to states of groups, or retract them."""
