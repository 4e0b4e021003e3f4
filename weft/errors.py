"""The errors Weft raises."""

from weft.base.errors import *
