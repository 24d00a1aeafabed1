"""Public test kit of the kernel: virtual time, scripted components, a seeded simulation, contracts.

For tests of this repository and of other people's components. Nothing in the product imports it.
"""

__all__: list[str] = []
