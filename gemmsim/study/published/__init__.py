"""Published experiments and known effects as data: a kind, its parameters, and what its rows must show.

What stands behind the interval of each check is said with it: "paper": the publication prints the number or bound;
"known effect": publications describe what it shows, the interval is this project's; "computed here": neither.
"""
