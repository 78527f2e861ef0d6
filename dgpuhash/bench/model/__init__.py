"""The model of larger clusters, checked against what was measured."""
