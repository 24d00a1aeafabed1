"""Joins of two keyed streams: by an interval of time (J1-J4), with versions (J9-J11)."""
