from typing import TYPE_CHECKING as _TYPE_CHECKING

from weft.base.lazy import lazily as _lazily
from weft.inspect.dot import *

if _TYPE_CHECKING:
    from weft.inspect.differences import diff as diff

__getattr__, __dir__ = _lazily(__name__, {"diff": "weft.inspect.differences"})
