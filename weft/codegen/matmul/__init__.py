"""Matrix products."""

from weft.codegen.matmul.emit import emit, packs_once
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.matmul.store import plain_store

__all__ = ["Operand", "Product", "emit", "packs_once", "plain_store"]
