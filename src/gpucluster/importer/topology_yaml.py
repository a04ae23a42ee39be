"""topology.yaml of a site (Slurm 25.05): several topologies with names. Pure."""

from collections.abc import Iterator, Mapping

from gpucluster.importer.lines import FileLine
from gpucluster.importer.site import Named, Setting, Site, Switch
from gpucluster.slurm.hostlist import HostlistError, expand_slurm
from gpucluster.spec.tree import ListNode, MapNode, Node, plain
from gpucluster.spec.yaml import TreeError, parse
from gpucluster.text import quoted

_KEYS = ("topology", "cluster_default", "tree", "block", "flat")


def read_topology_yaml(site: Site, shown: str, text: str) -> None:
    """Add the topologies of the file to the site; what is not of its form is reported by its line."""
    try:
        root = parse(text).root
    except TreeError as error:
        return site.complain(
            FileLine(shown, error.mark.line), f"it is no YAML of this form: {error.finding.message}"
        )
    if not isinstance(root, ListNode):
        return site.complain(FileLine(shown, 1), "it is no list of topologies")
    for item in root.items:
        place = FileLine(shown, item.mark.line)
        entries = _entries(item)
        name = _text(entries.get("topology"))
        if not name or name in site.named:
            site.complain(place, f"a topology has no name, or that of another: {quoted(name)}")
            continue
        strange = [key for key in entries if key not in _KEYS]
        if strange:
            of = ", ".join(map(quoted, strange))
            site.complain(
                place,
                f"the topology {quoted(name)} is not imported: a spec has tree, block and flat, not {of}",
            )
            continue
        site.named[name] = _named(site, entries, place, shown)
    return None


def _named(site: Site, entries: Mapping[str, Node], place: FileLine, shown: str) -> Named:
    default = _text(entries.get("cluster_default")).lower() == "true"
    tree, block = _entries(entries.get("tree")), _entries(entries.get("block"))
    found = (
        *_switches(site, tree.get("switches"), "switch", shown),
        *_switches(site, block.get("blocks"), "block", shown),
    )
    sizes = block.get("block_sizes")
    words = [str(plain(one)) for one in sizes.items] if isinstance(sizes, ListNode) else []
    return Named(
        place=place,
        default=default,
        switches={switch.name: switch for switch in found},
        sizes=Setting(",".join(words), place, "block_sizes") if words else None,
    )


def _switches(site: Site, node: Node | None, key: str, shown: str) -> Iterator[Switch]:
    for item in node.items if isinstance(node, ListNode) else ():
        place, entries = FileLine(shown, item.mark.line), _entries(item)
        nodes, below = (_names(site, entries.get(part), place) for part in ("nodes", "children"))
        yield Switch(_text(entries.get(key)), nodes, below, key == "block", place)


def _names(site: Site, node: Node | None, place: FileLine) -> tuple[str, ...]:
    try:
        return expand_slurm(_text(node))
    except HostlistError as error:
        site.complain(place, f"{quoted(_text(node))} is not a hostlist: {error}")
        return ()


def _entries(node: Node | None) -> Mapping[str, Node]:
    return {key: entry.node for key, entry in node.entries.items()} if isinstance(node, MapNode) else {}


def _text(node: Node | None) -> str:
    value = None if node is None else plain(node)
    return str(value).lower() if isinstance(value, bool) else value if isinstance(value, str) else ""
