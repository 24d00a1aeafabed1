"""Operators that the kernel itself brings."""
