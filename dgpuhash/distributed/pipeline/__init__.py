"""One rank's execution of a collective verb, as a pipelined all-to-all."""
