"""Check that the Slurm version knows every key, word and plugin of the rendered files.

An unknown key stops slurmctld, slurmd and every client. Most unknown words of a list are ignored without a message.
"""

import re

from gpucluster.catalog import SlurmFacts
from gpucluster.errors import GpuclusterError

_LINE_KINDS = {"nodename": "node", "partitionname": "partition"}
_PLUGIN_KEYS = {  # with the kind of plugin that a value may leave out, as in MpiDefault=pmix
    "authtype": "auth", "credtype": "cred", "jobacctgathertype": "jobacct_gather", "jobcontainertype": "job_container",
    "mpidefault": "mpi", "namespacetype": "namespace", "proctracktype": "proctrack", "schedulertype": "sched",
    "selecttype": "select", "taskplugin": "task", "topologyplugin": "topology",
}  # fmt: skip


class UnknownToSlurmError(GpuclusterError):
    """A rendered file has a key, word or plugin that this version of Slurm does not know."""


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
    kind = _PLUGIN_KEYS.get(key.lower())
    strange = facts.unknown_words(key, value) or (facts.unknown_plugins(value, kind) if kind else [])
    if strange:
        raise _unknown(f"{strange[0]!r} of {key}", file, line, facts)


def _unknown(what: str, file: str, line: str, facts: SlurmFacts) -> UnknownToSlurmError:
    step = "please report it: this is a bug of gpucluster, not of your spec"
    return UnknownToSlurmError(
        f"{file}: Slurm {facts.version} does not know {what}: {line[:120]}", next_step=step
    )
