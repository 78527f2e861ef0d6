"""DistributedGroupBy: incremental aggregates by group on the workers."""
