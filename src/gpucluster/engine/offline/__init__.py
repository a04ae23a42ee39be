"""The offline planner: list the resources of a program without a cloud, by the engine's side of Pulumi's protocol.

`run(program, plan)` returns a `Planned`. Only the process that programs are forked from imports pulumi: see `forks`.
"""

from gpucluster.engine.offline.model import Lookup, Planned, Resource
from gpucluster.engine.offline.planner import ProgramError, run

__all__ = ["Lookup", "Planned", "ProgramError", "Resource", "run"]
