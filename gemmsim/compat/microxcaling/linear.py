"""microxcaling's ``mx.linear``."""

from .functions import LinearFunction as LinearFunction
from .gemms import Linear as Linear
from .gemms import linear as linear
