"""Models as ONNX: the graph of a model, of its gradients and of an optimizer's step; folders; running them."""

from glassbert.export.folder import export_onnx
from glassbert.export.recording import record_model

__all__ = ["export_onnx", "record_model"]
