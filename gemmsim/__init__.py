"""Matrix products in any number format and with any accumulator, bit for bit."""

__version__ = "0.1.0"
