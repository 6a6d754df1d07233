"""microxcaling's ``mx.bmm``."""

from .functions import BMMFunction as BMMFunction
from .gemms import bmm as bmm
