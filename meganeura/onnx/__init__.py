"""ONNX: reading models of other frameworks (through the `onnx` package, an extra)."""

from meganeura.onnx.importer import OnnxModel as OnnxModel
from meganeura.onnx.importer import load as load
