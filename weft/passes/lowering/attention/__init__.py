"""Attention and its gradients, found in a graph: they become one node each."""

from weft.passes.lowering.attention.find import Fusion, Known, attentions

__all__ = ["Fusion", "Known", "attentions"]
