"""Trees of taxa: NCBI's and GTDB's files, lineages and lowest common ancestors."""
