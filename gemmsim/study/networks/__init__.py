"""Trained networks that studies measure: the files, how they are read, how they were made (see ``make``)."""
