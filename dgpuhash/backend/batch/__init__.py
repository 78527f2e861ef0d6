"""Operations on whole batches that tables share: partition, multisplit and bucket order."""
