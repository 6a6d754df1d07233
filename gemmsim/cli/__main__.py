"""``python -m gemmsim.cli`` is the ``gemmsim`` command."""

from . import main

if __name__ == "__main__":
    main()
