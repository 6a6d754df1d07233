"""From the text of a kernel to its launch: compiler, cache on disk, driver. What a kernel computes is unknown here."""
