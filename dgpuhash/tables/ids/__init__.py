"""KeyIds: the two-way index of keys and ids."""
