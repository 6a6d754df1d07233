"""Published experiments and known effects as data: a kind, its parameters, and what its rows must show.

Where an expected number comes from is said with it: "paper" is printed in the publication; "derived" follows from
arithmetic, as said; "measured here first" was found with this library and is stated with its spread.
"""
