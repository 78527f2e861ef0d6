"""The two-way index of keys and ids."""
