"""The request to the process that runs one program. It uses standard input, because it may hold secret settings."""

from collections.abc import Mapping
from dataclasses import dataclass, field

AMEND_VARIABLE = "GPUCLUSTER_AMEND"  # `module:function`, in the environment of `gpucluster sandbox shell`
SAID_ALREADY = 32  # Pulumi's exit code of a program that reported its error


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """One run of one program. `overlay` is the `module:function` that changes the program's plan; empty: no change."""

    program: str  # a folder with `__main__.py`, or a file
    folder: str  # working directory
    root: str  # folder of Pulumi.yaml
    project: str
    stack: str
    organization: str
    monitor: str
    engine: str
    parallel: int
    preview: bool
    config: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    secret_keys: tuple[str, ...] = ()
    overlay: str = ""
