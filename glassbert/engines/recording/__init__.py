"""An engine that writes down: arrays are symbols, and running a model records a graph."""

from glassbert.engines.recording.engine import RecordingEngine
from glassbert.engines.recording.graph import Finished, Graph, Node
from glassbert.engines.recording.sizes import Size
from glassbert.engines.recording.symbols import Symbol

__all__ = ["Finished", "Graph", "Node", "RecordingEngine", "Size", "Symbol"]
