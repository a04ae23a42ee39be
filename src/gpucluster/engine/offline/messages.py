"""What the planner and its child say to each other: one JSON object down, one up."""

from dataclasses import dataclass

from gpucluster.engine.offline.answers import Recording
from gpucluster.engine.offline.model import Planned
from gpucluster.plan.model import ClusterPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """What is to be planned, and how."""

    program: str  # module:function; the function takes the plan
    plan: ClusterPlan
    project: str
    stack: str
    socket: str  # a path that nobody else can reach
    limit_s: float
    answers: tuple[Recording, ...] = ()
    assume: bool = False  # made-up values for what only the cloud tells


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why there is no plan."""

    message: str
    trace: str = ""  # for who looks for a mistake in the program


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """One of the two."""

    planned: Planned | None = None
    failure: Failure | None = None
