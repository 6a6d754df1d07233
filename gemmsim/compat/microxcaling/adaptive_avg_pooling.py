"""microxcaling's ``mx.adaptive_avg_pooling``."""

from .pooling import AdaptiveAvgPool2d as AdaptiveAvgPool2d
from .pooling import adaptive_avg_pool2d as adaptive_avg_pool2d
