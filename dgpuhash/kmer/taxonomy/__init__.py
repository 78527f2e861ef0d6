"""Taxonomies of NCBI and GTDB: lineages and lowest common ancestors."""
