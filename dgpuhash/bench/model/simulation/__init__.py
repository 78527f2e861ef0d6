"""Discrete-event simulation of many GPUs: ranks, hosts, links and messages."""
