"""Models as ONNX: the graph of a model, of its gradients and of an optimizer's step; folders; running them."""

from glassbert.export.folder import Exported, export_onnx
from glassbert.export.gradients import gradient_name, record_gradients, record_parameters, record_step
from glassbert.export.recording import record_model
from glassbert.export.runtime import OnnxModel, compare_with_model, open_onnx
from glassbert.export.writing import write_onnx

__all__ = [
    "Exported",
    "OnnxModel",
    "compare_with_model",
    "export_onnx",
    "gradient_name",
    "open_onnx",
    "record_gradients",
    "record_model",
    "record_parameters",
    "record_step",
    "write_onnx",
]
