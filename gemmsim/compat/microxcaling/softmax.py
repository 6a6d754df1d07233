"""microxcaling's ``mx.softmax``."""

from .activations import Softmax as Softmax
from .activations import softmax as softmax
from .functions import SoftmaxFunction as SoftmaxFunction
