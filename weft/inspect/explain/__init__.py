from weft.inspect.explain.explain import explain as explain
from weft.inspect.explain.kernels import KernelView as KernelView
from weft.inspect.explain.kernels import kernels_of as kernels_of
from weft.inspect.explain.report import Report as Report
