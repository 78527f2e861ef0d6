"""Key columns of any dtype as fixed-width codes, and the table that finds rows by code."""
