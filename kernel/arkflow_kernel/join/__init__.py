"""The interval join of two keyed streams (J1-J4)."""
