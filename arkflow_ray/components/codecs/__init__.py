"""The built-in codecs, one a module."""
