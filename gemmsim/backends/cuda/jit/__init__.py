"""Compiles and launches kernels: compiler, cache on disk, driver. It does not depend on what a kernel computes."""
