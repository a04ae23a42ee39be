"""job_container.conf: the folder for the /tmp of jobs, of all nodes or of some. Pure."""

from collections.abc import Sequence

from gpucluster.importer.lines import Statement
from gpucluster.importer.site import JOB_CONTAINER, Site, settings_of


def job_container_conf(site: Site, statements: Sequence[Statement]) -> None:
    """A line with NodeName is for these nodes. What all nodes have from such lines is a value of the whole file."""
    whole = site.others.setdefault(JOB_CONTAINER, {})
    for statement in statements:
        settings = settings_of(JOB_CONTAINER, statement, statement.pairs)
        listed = settings.pop("nodename", None)
        if listed is None:
            whole |= settings
        for node in () if listed is None else site.names(listed):
            site.tmp.setdefault(node, {}).update(settings)
    every = [site.tmp.get(node, {}) for node in site.nodes]
    for key, one in dict(every[0] if every else {}).items():
        if key not in whole and all(key in of and of[key].value == one.value for of in every):
            whole[key] = one
            for of in site.tmp.values():
                of.pop(key, None)
