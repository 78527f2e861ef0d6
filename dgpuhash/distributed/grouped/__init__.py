"""DistributedGroupBy: aggregates by group that live on the workers."""
