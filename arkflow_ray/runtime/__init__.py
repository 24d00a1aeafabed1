"""The Ray backend: clocks, chain hosts, actors, deployment. Only this package imports ray."""
