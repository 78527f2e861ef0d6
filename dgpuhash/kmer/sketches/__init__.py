"""MetaCache's rule: a multimap from sketches of windows to their locations."""
