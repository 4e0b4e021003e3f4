from weft.inspect.dot import *
