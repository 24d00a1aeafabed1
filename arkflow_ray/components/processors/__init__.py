"""The built-in processors, one a module."""
