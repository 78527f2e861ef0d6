"""Read sequence files (FASTA, FASTQ) as batches of letters."""
