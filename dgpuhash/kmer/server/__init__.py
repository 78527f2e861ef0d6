"""Server for k-mer indexes: load once, classify the reads of many clients."""
