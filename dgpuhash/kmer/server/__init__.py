"""Server that keeps k-mer indexes in memory and answers the reads that clients send."""
