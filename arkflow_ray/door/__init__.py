"""The door of an attached run: how another process of the same user talks to its jobs (X4, D5)."""
