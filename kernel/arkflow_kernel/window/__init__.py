"""Windows over keyed rows: by event time or by the wall clock (N1-N7, W6, W7)."""
