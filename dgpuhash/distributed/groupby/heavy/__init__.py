"""Medians and quantiles of very large groups, without sending their rows."""
