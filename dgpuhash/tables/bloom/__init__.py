"""Bloom filters: the public class, and blocks of bits on key words."""
