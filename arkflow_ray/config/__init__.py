"""From a configuration file to checked jobs: located tree, references, models, checks."""
