"""Messages between the planner and the process of a program: one JSON object in each direction."""

from dataclasses import dataclass

from gpucluster.engine.offline.answers import Recording
from gpucluster.engine.offline.model import Planned
from gpucluster.plan.model import ClusterPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """The program to plan, and the options."""

    program: str  # module:function; the function takes the plan
    plan: ClusterPlan
    project: str
    stack: str
    limit_s: float
    answers: tuple[Recording, ...] = ()
    assume: bool = False  # use placeholders for values that only the cloud knows


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The reason why there is no plan."""

    message: str
    trace: str = ""  # the traceback, to find a mistake in the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Either a plan or a failure."""

    planned: Planned | None = None
    failure: Failure | None = None
