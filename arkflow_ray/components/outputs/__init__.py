"""The built-in outputs, one a module."""
