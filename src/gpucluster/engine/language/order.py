"""What the host tells the process that runs one program; on standard input, because it may hold secret settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

AMEND_VARIABLE = "GPUCLUSTER_AMEND"  # `module:function`, in the environment of `gpucluster sandbox shell`
SAID_ALREADY = 32  # Pulumi's own code of a program that has told its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run of one program. `amend` is `module:function`, over the program's plan; empty: as it is."""

    program: str  # a folder with `__main__.py`, or a file
    folder: str  # where it runs
    root: str  # where Pulumi.yaml stands
    project: str
    stack: str
    organization: str
    monitor: str
    engine: str
    parallel: int
    preview: bool
    config: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secret_keys: tuple[str, ...] = ()
    amend: str = ""
