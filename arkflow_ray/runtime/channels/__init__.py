"""Socket channels between the chains of a job: one connection per pair, one thread per chain."""
