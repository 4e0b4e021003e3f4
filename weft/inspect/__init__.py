import typing as _typing

from weft.base.lazy import lazily as _lazily
from weft.inspect.dot import *

if _typing.TYPE_CHECKING:
    from weft.inspect.differences import diff as diff
    from weft.inspect.pipeline import save_pipeline as save_pipeline
else:
    __getattr__, __dir__ = _lazily(
        __name__, {"diff": "weft.inspect.differences", "save_pipeline": "weft.inspect.pipeline"}
    )
