"""Open-addressing table: slots, growth, and bulk builds by region."""
