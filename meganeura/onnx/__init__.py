"""ONNX: reading models of other frameworks, and writing ours (through the `onnx` package, an extra)."""

from meganeura.onnx.exporter import export as export
from meganeura.onnx.importer import OnnxModel as OnnxModel
from meganeura.onnx.importer import load as load
