"""Graph → Graph: one pass per file, and the pipeline that runs them."""

from weft.passes.contract import Notes as Notes
from weft.passes.contract import Pass as Pass
from weft.passes.contract import graph_pass as graph_pass
from weft.passes.lowering.frames import LowerControlFlow as LowerControlFlow
from weft.passes.lowering.lift import LiftControlFlow as LiftControlFlow
from weft.passes.pipeline import optimize as optimize
from weft.passes.pipeline import passes as passes
from weft.passes.pipeline import register as register
from weft.passes.pipeline import unregister as unregister
from weft.passes.stop_gradient import DropStopGradient as DropStopGradient
