"""Matrix products."""

from weft.codegen.matmul.emit import emit
from weft.codegen.matmul.product import Operand, Product
from weft.codegen.matmul.store import plain_store

__all__ = ["Operand", "Product", "emit", "plain_store"]
