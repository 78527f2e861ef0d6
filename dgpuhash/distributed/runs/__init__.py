"""Runs on the workers in the phases sink, finalize and source, for merges and groupbys alike."""
