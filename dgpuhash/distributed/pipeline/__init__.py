"""Run a collective table verb on one rank, as a pipelined all-to-all."""
