"""Reasons that Slurm's source has and that the recorder does not make: each with its sender, its user and its function.

They were read in 24.11.5 and 26.05.3. A row of a version leaves this table as soon as a case of `slurm_lab.drains` makes it.
"""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass


@dataclass(frozen=True)
class ReadRow:
    """A reason of the source. `since` and `until` are the versions of the laboratory that have it."""

    text: str
    function: str
    file: str
    sender: str = "slurmctld"
    user: str = "slurm"
    since: str = "24.11"
    until: str = "26.05"


_GRES, _NODES = "src/interfaces/gres.c", "src/slurmctld/node_mgr.c"
_AGENT, _STEPD = "src/slurmctld/agent.c", "src/slurmd/slurmstepd"
READ = (
    ReadRow("Prolog/Epilog failure", "_notify_slurmctld_nodes", _AGENT),
    ReadRow("Duplicate jobid", "_notify_slurmctld_nodes", _AGENT),
    ReadRow("Bad core count", "_job_test", "src/plugins/select/cons_tres/job_test.c"),
    ReadRow("CoreSpec differ", "validate_node_specs", _NODES),
    ReadRow("Could not unpack gres data", "validate_node_specs", _NODES),
    ReadRow("Reported active features ({words}) are not a superset of currently active changeable features ({words})", "validate_node_specs", _NODES),
    ReadRow("Failed to parse dynamic_conf nodeline", "validate_node_specs", _NODES, since="26.05"),
    ReadRow("Failed to set topology '{words}'", "validate_node_specs", _NODES, since="26.05"),
    ReadRow("RestrictedCoresPerGPU={number} but no gpus on node {node}", "_set_gpu_spec", _NODES),
    ReadRow("RestrictedCoresPerGPU={number} but the gpus given don't have any topology on node {node}.", "_set_gpu_spec", _NODES),
    ReadRow("RestrictedCoresPerGPU: We can't restrict {number} core(s) per gpu. GPU {words}({number}) doesn't have access to that many unique cores ({number}).", "_set_gpu_spec", _NODES),
    ReadRow("gres/{gres}:{type} count too low ({number} < {number})", "_valid_gres_types", _GRES),
    ReadRow("gres/{gres} count too low ({number} < {number})", "gres_node_config_validate", _GRES),
    ReadRow("gres/{gres} type ({type}) reported but not configured", "_valid_gres_type", _GRES),
    ReadRow("Invalid GRES index ({number} >= {number})", "_links_str2array", _GRES),
    ReadRow("Invalid GRES Links value ({words}) on node {node}: {words}", "_links_str2array", _GRES),
    ReadRow("gres/{gres} GRES core specification {words} for node {node} doesn't match socket boundaries. (Socket {number} is cores {number}-{number})", "_check_core_range_matches_sock", _GRES),
    ReadRow("gres/{gres} GRES autodetected core affinity {words} on node {node} doesn't match socket boundaries. (Socket {number} is cores {number}-{number}). Consider setting SlurmdParameters=l3cache_as_socket (recommended) or override this by manually specifying core affinity in gres.conf.", "_check_core_range_matches_sock", _GRES),
    ReadRow("Failed to set node feature(s): '{words}'", "_rpc_reboot", "src/slurmd/slurmd/req.c", sender="slurmd", user="root"),
    ReadRow("Cannot collect energy data.", "_send_drain_request", "src/plugins/acct_gather_energy/rapl/acct_gather_energy_rapl.c", sender="slurmd", user="root"),
    ReadRow("Job step not running", "_monitor", f"{_STEPD}/step_terminate_monitor.c", sender="slurmstepd", user="root", until="24.11"),
    ReadRow("Job step not running (JobId={job} StepId={step})", "_monitor", f"{_STEPD}/step_terminate_monitor.c", sender="slurmstepd", user="root", since="26.05"),
    ReadRow("switch_g_job_postfini failed", "job_manager", f"{_STEPD}/mgr.c", sender="slurmstepd", user="root"),
)  # fmt: skip


def read_rows(version: str, recorded: Iterable[str]) -> Iterator[dict[str, str]]:
    """The rows of this version, in the order of their texts. Raise ValueError for one that was recorded."""
    texts = set(recorded)
    for row in sorted(READ, key=lambda row: row.text):
        if not row.since <= version <= row.until:
            continue
        if row.text in texts:
            raise ValueError(f"it is recorded now: remove it from read_drains.py: {row.text}")
        yield {k: v for k, v in asdict(row).items() if k not in ("since", "until")}
