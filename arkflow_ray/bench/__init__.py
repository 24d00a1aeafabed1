"""Measuring: queries on this machine's Ray and on a peer. Shared by `bench` and benchmarks/."""
