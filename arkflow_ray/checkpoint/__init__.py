"""The checkpoint store: exclusive files for a job's log, immutable objects, and the start-up probe.

`open.py` is the way in. Knows the kernel and fsspec, never the runtime.
"""
