"""Operators that keep something per key without windows: aggregates, first rows, best rows."""
