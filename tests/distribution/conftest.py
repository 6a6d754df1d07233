"""The scripts in packaging/ import each other by name, as they do when they run."""

from __future__ import annotations

import sys

from support import ROOT

sys.path.append(str(ROOT / "packaging"))
