"""The Ray-free kernel: machines that take events and return commands, and their data."""
