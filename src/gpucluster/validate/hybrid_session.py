"""One run of checks over Slurm's machines and over Kubernetes."""

from gpucluster.checks.kubernetes.table import KUBERNETES
from gpucluster.validate.expectation import Expectation
from gpucluster.validate.results import Result
from gpucluster.validate.session import AnySession


class HybridSession:
    """A session of a cluster with Slurm and Kubernetes. A check of one never needs a check of the other."""

    def __init__(self, machines: AnySession, kubernetes: AnySession) -> None:
        self._machines, self._kubernetes = machines, kubernetes
        self.results: list[Result] = []

    def result(self, expectation: Expectation) -> Result:
        """The result of the expectation, by the session whose check it is."""
        session = self._kubernetes if expectation.check in KUBERNETES else self._machines
        found = session.result(expectation)
        self.results.append(found)
        return found

    def close(self) -> None:
        """Close both."""
        try:
            self._machines.close()
        finally:
            self._kubernetes.close()
