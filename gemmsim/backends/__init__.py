"""Backends compute the same bits for the same spec on each device. Each one is loaded when it is first used."""
