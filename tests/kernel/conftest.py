"""Hypothesis settings of the kernel's tests: no deadlines on shared machines, few examples each."""

from hypothesis import settings

settings.register_profile("kernel", deadline=None, max_examples=50)
settings.load_profile("kernel")
