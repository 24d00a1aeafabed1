"""Keyed state: what an operator keeps per key, columnar and in memory (S1, S7, S8, S10, S11)."""
