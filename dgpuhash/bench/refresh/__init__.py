"""Answers of TPC-H under change: kept by what changes, beside the same anew."""
