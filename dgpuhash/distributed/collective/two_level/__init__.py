"""Two-level all-to-all: within hosts, then one message per pair of hosts."""
