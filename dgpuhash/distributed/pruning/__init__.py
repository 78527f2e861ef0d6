"""Semi-join reduction: Bloom filters and deduplicated keys, before anything is sent."""
