"""Sketches of windows in a multimap: MetaCache's rule."""
