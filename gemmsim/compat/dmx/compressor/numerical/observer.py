"""The module ``dmx.compressor.numerical.observer``."""

from ...histogram_observer import HistogramObserver
from ...observers import DMXObserverBase, DummyObserver, MinMaxObserver

__all__ = ["DMXObserverBase", "DummyObserver", "HistogramObserver", "MinMaxObserver"]
