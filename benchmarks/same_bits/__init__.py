"""What the package computes and generates, as digests: two dumps tell whether a change of the code changed anything."""
