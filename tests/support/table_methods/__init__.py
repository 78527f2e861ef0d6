"""Methods of tables in tests: which there are, what each promises, and one more to play with."""
