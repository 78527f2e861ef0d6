"""Semi-join reduction: prune keys before they are sent to their owners."""
