"""Inputs, outputs, processors, codecs and their registry. Knows the kernel, not the runtime."""
