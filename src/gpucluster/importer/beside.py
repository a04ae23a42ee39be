"""Files that Slurm reads beside slurm.conf although no line names them, and that a spec does not have: each is reported."""

import re

from gpucluster.importer.lines import MAX_COMPLAINTS, Effect, FileLine
from gpucluster.importer.site import Site
from gpucluster.text import short

PLUGSTACK = "plugstack.conf"
_WHY: dict[str, tuple[Effect | None, str]] = {  # file -> what its loss does, and why it is not imported
    "acct_gather.conf": (None, "its plugins of energy, profiles and interconnects have no field"),
    "mpi.conf": (None, "its options of MPI plugins have no field"),
    "oci.conf": (Effect.REFUSED, "a job with --container is refused; `slurm.containers` has --container-image"),
    "resources.yaml": (Effect.REFUSED, "a job that asks for one of its resources is refused; write `slurm.licenses`"),
}  # fmt: skip
FILES = (PLUGSTACK, *_WHY)
_PLUGIN = re.compile(r"\s*(required|optional|include)\s+([^\s#]+)", re.IGNORECASE)
_OPTIONS = "a job with an option of it is refused, and what it does for each job is lost"


def report_file(site: Site, kind: str, shown: str, text: str) -> None:
    """Report a file that is not imported; of plugstack.conf each plugin, without its options."""
    if kind != PLUGSTACK:
        effect, why = _WHY[kind]
        site.complain(FileLine(shown, 1), f"the file is not imported: {why}", effect)
        return
    lines = ((at, line) for at, line in enumerate(text.split("\n"), 1) if line.partition("#")[0].strip())
    for count, (number, line) in enumerate(lines):
        if count == MAX_COMPLAINTS:
            site.complain(FileLine(shown, number), "and more plugins, which are not listed", Effect.REFUSED)
            break
        site.complain(FileLine(shown, number), _of_plugin(line), Effect.REFUSED)


def _of_plugin(line: str) -> str:
    found = _PLUGIN.match(line)
    if found is None:
        return "the line names no plugin, and is not imported"
    word, name = found[1].lower(), short(found[2], 120)
    if word == "include":
        return f"the file {name} is not imported: its plugins are lost, and jobs with options of them are refused"
    instead = "; write `slurm.containers`" if "pyxis" in name else ""
    return f"the plugin {name} is not imported: {_OPTIONS}{instead}"
