"""ONNX: functions, modules and programs as files that other engines run. See docs/onnx.md."""

from weft.interop.onnx.export import export as export
from weft.interop.onnx.export import model as model
from weft.interop.onnx.table import row as row
