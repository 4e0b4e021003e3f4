"""`weft.view`: graphs as one HTML page that works offline."""

from weft.inspect.view.page import Page as Page
from weft.inspect.view.page import Panel as Panel
from weft.inspect.view.view import view as view
