"""What runs at the start of the Python processes that a program under ``gemmsim emulate`` or ``audit`` starts."""
