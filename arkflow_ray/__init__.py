"""ArkFlow streaming pipelines, distributed on Ray."""
