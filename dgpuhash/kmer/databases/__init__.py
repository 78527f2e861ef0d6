"""Common parts of databases of both rules: provenance, merges, size estimates."""
