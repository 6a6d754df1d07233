"""The module ``dmx.compressor.numerical.observer``."""

from ...histogram_observer import HistogramObserver as HistogramObserver
from ...observers import DMXObserverBase as DMXObserverBase
from ...observers import DummyObserver as DummyObserver
from ...observers import MinMaxObserver as MinMaxObserver
