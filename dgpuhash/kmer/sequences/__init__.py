"""Files of sequences as batches of letters."""
