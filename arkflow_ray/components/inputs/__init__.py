"""The built-in inputs, one a module."""
