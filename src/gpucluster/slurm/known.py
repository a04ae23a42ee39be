"""Every key and word that we emit, held against what the Slurm version knows.

An unknown key stops slurmctld, slurmd and every client; most unknown words of a list are ignored in silence.
Either is a mistake of ours, found before a machine is.
"""

import re

from gpucluster.catalog import SlurmFacts
from gpucluster.errors import GpuclusterError

_LINE_KINDS = {"nodename": "node", "partitionname": "partition"}
_PLUGIN_KEYS = {
    "authtype", "credtype", "jobacctgathertype", "mpidefault", "proctracktype", "schedulertype", "selecttype",
    "taskplugin", "topologyplugin",
}  # fmt: skip


class UnknownToSlurmError(GpuclusterError):
    """We wrote what this version does not know."""


def check(file: str, text: str, facts: SlurmFacts) -> None:
    """Raise UnknownToSlurmError for the first key, word or plugin of `file` that the version does not know."""
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            _check_line(file, line, facts)


def _check_line(file: str, line: str, facts: SlurmFacts) -> None:
    pairs = [word.partition("=") for word in re.split(r"\s+", line.strip())]
    kind = _LINE_KINDS.get(pairs[0][0].lower(), file) if file == "slurm.conf" else file
    for index, (key, _, value) in enumerate(pairs):
        known = facts.keys[kind if index else file]
        first_of_kind = index == 0 and key.lower() == "nodename"  # gres.conf lines may begin with it
        if key.lower() not in known and not first_of_kind:
            raise _unknown(f"the key {key}", file, line, facts)
        _check_value(key, value, file, line, facts)


def _check_value(key: str, value: str, file: str, line: str, facts: SlurmFacts) -> None:
    words = [word.partition("=")[0] for word in value.split(",")]
    if key in facts.tokens:
        strange = [word for word in words if word not in facts.tokens[key]]
    elif key.lower() in _PLUGIN_KEYS:
        strange = [word for word in words if word not in facts.plugins]
    else:
        strange = []
    if strange:
        raise _unknown(f"{strange[0]!r} of {key}", file, line, facts)


def _unknown(what: str, file: str, line: str, facts: SlurmFacts) -> UnknownToSlurmError:
    step = "this is a mistake of gpucluster's, not of your spec: please report it"
    return UnknownToSlurmError(
        f"{file}: Slurm {facts.version} does not know {what}: {line[:120]}", next_step=step
    )
