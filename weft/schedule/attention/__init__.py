"""Attention and its gradients, found in a graph: they become one node each."""

from weft.schedule.attention.find import Fusion, attentions

__all__ = ["Fusion", "attentions"]
