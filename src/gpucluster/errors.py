"""What can go wrong, by the caller's next move.

    GpuclusterError            exit 2, the tool could not run
    |-- SpecError              exit 1, the user edits the spec; carries every problem of the run
    |-- HostError              exit 2, this machine lacks something; carries the line to type
    `-- StateError             exit 2, a cluster of that name is in another state than the verb needs

A message says where, what was found, what was expected, and what to do next.
"""

INTERRUPTED = 130  # 128 + SIGINT: the exit code that a shell gives an interrupted program


class GpuclusterError(Exception):
    """The tool could not do what was asked."""

    exit_code = 2

    def __init__(self, message: str, *, next_step: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.message}\n  next: {self.next_step}" if self.next_step else self.message


class HostError(GpuclusterError):
    """This machine cannot do it as it is; `next_step` is the line to type."""


class StateError(GpuclusterError):
    """The cluster or the sandbox is not in the state that the verb needs."""


class SpecError(GpuclusterError):
    """The spec is wrong; `problems` are complete, rendered lines in file order."""

    exit_code = 1

    def __init__(self, problems: tuple[str, ...]) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems
