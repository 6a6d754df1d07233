"""``python -m gemmsim`` is the ``gemmsim`` command."""

from .cli import main

if __name__ == "__main__":
    main()
