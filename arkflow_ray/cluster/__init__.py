"""Jobs that live in a cluster: submitted from one machine, watched and stopped from any other."""
