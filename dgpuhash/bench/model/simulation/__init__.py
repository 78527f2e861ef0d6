"""Simulation of many GPUs by discrete events: ranks, hosts, links and messages."""
