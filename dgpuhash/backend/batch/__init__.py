"""Operations on whole batches: partition, multisplit and bucket order."""
