"""Open-addressing table: slots, growth, and the bulk build by region."""
