"""The module ``qtorch.auto_low.auto_low``."""

from . import lower as lower
from . import sequential_lower as sequential_lower
