"""Exchange in two levels: within hosts, and by one message between two hosts."""
