"""The offline planner: the engine's side of Pulumi's protocol, so that a program's resources are seen without a cloud.

`run(program, plan)` gives a `Planned`; `model` imports no pulumi, and neither does `run`: a child process does.
"""

from gpucluster.engine.offline.model import Lookup, Planned, Resource
from gpucluster.engine.offline.planner import ProgramError, run

__all__ = ["Lookup", "Planned", "ProgramError", "Resource", "run"]
