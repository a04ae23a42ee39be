"""The files of a site as Slurm reads them: DEFAULT lines in their order, expanded hostlists, the last value of a repeated key. Pure."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from gpucluster.importer import keys
from gpucluster.importer.gpus import words_of
from gpucluster.importer.job_container import job_container_conf
from gpucluster.importer.lines import Effect, FileLine, Pair, Reader, Statement
from gpucluster.importer.site import (
    JOB_CONTAINER,
    MAX_NODES,
    Setting,
    Settings,
    Site,
    Switch,
    expanded,
    put,
    settings_of,
)
from gpucluster.slurm import hostlist
from gpucluster.text import quoted

MAX_PARTITIONS = 2000
MAX_DEVICES = 4096  # of one gres.conf line


def read_site(reader: Reader, texts: Iterable[tuple[str, str, str]]) -> Site:
    """Read (kind, shown name, text) of each file; the kind is `slurm.conf`, `gres.conf` and so on, slurm.conf first."""
    site = Site(complaints=reader.complaints)
    for kind, shown, text in texts:
        take = _FILES.get(kind, _other(kind))
        found = (_begun(site, statement) for statement in reader.statements(shown, text))
        take(site, [statement for statement in found if statement is not None])
    gres = {of["gres"].value for of in site.nodes.values() if "gres" in of}
    site.gres_names = frozenset(name for value in gres for name, _, count in words_of(value) if count)
    return site


def _begun(site: Site, statement: Statement) -> Statement | None:
    """The statement if it says what it is of. Without its first word the other ones are no keys of the whole file."""
    first, strange = statement.pairs[0], " ".join(statement.wrong).lower()
    if statement.begun or first.key.lower() in _BEGINS:
        return statement
    if "partition" in strange and "default" in strange:
        return replace(statement, pairs=(Pair("PartitionName", "DEFAULT"), *statement.pairs))
    site.complain(
        statement.place,
        f"its first word is wrong, so the rest is not imported: {', '.join(pair.key for pair in statement.pairs)}",
        Effect.REFUSED if strange.startswith(("partition", "node")) else None,
    )
    return None


def _slurm_conf(site: Site, statements: Sequence[Statement]) -> None:
    defaults: dict[str, Settings] = {"node": {}, "partition": {}}
    for statement in statements:
        first = statement.pairs[0]
        kind = _LINES.get(first.key.lower())
        if kind is None:
            _globals(site, statement)
        elif kind in defaults and first.value.upper() == "DEFAULT":
            defaults[kind].update(settings_of(kind, statement, statement.pairs[1:]))
        else:
            _NAMED[kind](site, statement, defaults.get(kind, {}))
    _sockets(site)
    _partitions_checked(site)


def _globals(site: Site, statement: Statement) -> None:
    for pair in statement.pairs:
        low = pair.key.lower()
        if low in _LINES:
            site.complain(statement.place, f"{pair.key} must begin its line; it is not imported")
        elif low == "slurmctldhost":
            _controller(site, statement.place, pair)
        elif low in _PROGRAMS and low in site.cluster:
            first, more = site.cluster[low], keys.shown("slurm.conf", low, pair.value)
            site.cluster[low] = replace(first, value=f"{first.value} and {more}")
        else:
            put(site.cluster, "slurm.conf", pair, statement.place)


def _controller(site: Site, place: FileLine, pair: Pair) -> None:
    """A SlurmctldHost line: the first is the controller, each further one a backup."""
    count = sum(1 for key in site.cluster if key.startswith("slurmctldhost") and "address" not in key)
    key = "slurmctldhost" if not count else f"slurmctldhost {count + 1}"
    name, _, address = pair.value.partition("(")
    site.cluster[key] = Setting(name, place, "SlurmctldHost")
    if address:
        site.cluster[f"{key} address"] = Setting(address.rstrip(")"), place, "SlurmctldHost")


def _nodes(site: Site, statement: Statement, defaults: Settings) -> None:
    place, first = statement.place, statement.pairs[0]
    own = settings_of("node", statement, statement.pairs[1:])
    found = expanded(first.value)
    if isinstance(found, str):
        return site.complain(
            place, f"NodeName={quoted(first.value)} is not a hostlist: {found}; the line is not imported"
        )
    common = {**defaults, **own}
    lists = {
        key: common.pop(key) for key in ("nodeaddr", "nodehostname", "bcastaddr", "port") if key in common
    }
    each = {key: _paired(site, one, len(found)) for key, one in lists.items()}
    for at, name in enumerate(found):
        if name in site.nodes:
            site.complain(place, f"the node {quoted(name)} is defined twice; the first line counts")
        elif len(site.nodes) >= MAX_NODES:
            return site.complain(
                place, f"more than {MAX_NODES} nodes, Slurm's limit; the others are not imported"
            )
        else:
            more = {
                key: Setting(values[at], lists[key].place, lists[key].written)
                for key, values in each.items()
                if values
            }
            site.nodes[name] = {"nodename": Setting(name, place, first.key), **common, **more}
    return None


def _paired(site: Site, listed: Setting, count: int) -> tuple[str, ...]:
    """One value for each node: the list has as many, or one for all."""
    found = expanded(listed.value)
    if not isinstance(found, str) and len(found) == count:
        return found
    if not isinstance(found, str) and len(found) == 1:
        return found * count
    why = found if isinstance(found, str) else f"it has {len(found)} names for {count} nodes"
    site.complain(listed.place, f"{listed.written}={quoted(listed.value)} is not imported: {why}")
    return ()


def _partition(site: Site, statement: Statement, defaults: Settings) -> None:
    place, first = statement.place, statement.pairs[0]
    if first.value in site.partitions:
        return site.complain(
            place, f"the partition {quoted(first.value)} is defined twice; the first line counts"
        )
    if len(site.partitions) >= MAX_PARTITIONS:
        return site.complain(place, f"more than {MAX_PARTITIONS} partitions; this one is not imported")
    own = settings_of("partition", statement, statement.pairs[1:])
    site.partitions[first.value] = {
        "partitionname": Setting(first.value, place, first.key),
        **defaults,
        **own,
    }
    return None


def _nodeset(site: Site, statement: Statement, _defaults: Settings) -> None:
    settings, first = settings_of("nodeset", statement, statement.pairs[1:]), statement.pairs[0]
    if first.value in site.nodesets:
        return site.complain(
            statement.place, f"the nodeset {quoted(first.value)} is defined twice; the first line counts"
        )
    site.nodesets[first.value] = {"nodeset": Setting(first.value, statement.place, first.key), **settings}
    return None


def _downnodes(site: Site, statement: Statement, _defaults: Settings) -> None:
    settings = settings_of("downnodes", statement, statement.pairs[1:])
    name = statement.pairs[0].value
    site.downnodes[name] = {"downnodes": Setting(name, statement.place, statement.pairs[0].key), **settings}


def _frontend(site: Site, statement: Statement, _defaults: Settings) -> None:
    site.complain(
        statement.place,
        "FrontendName is refused: each node of gpucluster runs its own slurmd, and Slurm 25.05 has removed front-end mode",
    )


def _sockets(site: Site) -> None:
    """SocketsPerBoard counts the sockets of one board; with several boards `Sockets` stays another key."""
    for settings in site.nodes.values():
        one = settings.get("socketsperboard")
        boards = settings.get("boards")
        if (
            one is not None
            and one.written.lower() == "sockets"
            and boards is not None
            and boards.value != "1"
        ):
            settings["sockets"] = settings.pop("socketsperboard")


def _partitions_checked(site: Site) -> None:
    """Report names in a partition that are neither a node nor a set of nodes."""
    for settings in site.partitions.values():
        listed = settings.get("nodes")
        if listed is None:
            continue
        strange = [name for name in site.chosen(settings) if name not in site.nodes]
        if strange:
            more = f" and {len(strange) - 1} more" if len(strange) > 1 else ""
            site.complain(listed.place, f"{quoted(strange[0])}{more} of Nodes is not the name of a node")


def _gres_conf(site: Site, statements: Sequence[Statement]) -> None:
    """A line without NodeName is for every node whose Gres has its name, because each node reads the same file."""
    lines: dict[str, list[tuple[Settings, FileLine]]] = {}
    for statement in statements:
        settings = settings_of("gres.conf", statement, statement.pairs)
        listed = settings.pop("nodename", None)
        where = site.names(listed) if listed is not None else _with_gres(site, settings.get("name"))
        for node in where or ("",):
            lines.setdefault(node, []).append((settings, statement.place))
    cache: dict[tuple[int, ...], Settings] = {}
    for node, found in lines.items():
        signature = tuple(id(settings) for settings, _ in found)
        if signature not in cache:
            cache[signature] = _devices(site, found)
        site.gres[node] = cache[signature]


def _with_gres(site: Site, name: Setting | None) -> tuple[str, ...]:
    if name is None:
        return ()
    low = name.value.lower()
    return tuple(
        node
        for node, of in site.nodes.items()
        if "gres" in of
        and low in {word.partition(":")[0].strip().lower() for word in of["gres"].value.split(",")}
    )


def _devices(site: Site, lines: Iterable[tuple[Settings, FileLine]]) -> Settings:
    """The lines of one node by GRES and attribute; an attribute that differs between devices lists the devices."""
    table: dict[str, list[tuple[str, Setting]]] = {}
    for settings, place in lines:
        name = settings["name"].value.lower() if "name" in settings else ""
        file = settings.get("file")
        devices = () if file is None else expanded(file.value, most=MAX_DEVICES)
        if isinstance(devices, str):
            site.complain(
                file.place if file else place, f"File={quoted(file.value if file else '')}: {devices}"
            )
            devices = ()
        if devices:
            table.setdefault(f"{name} file".strip(), []).extend(
                (d, Setting(d, file.place, "File")) for d in devices if file
            )
        for key, one in settings.items():
            if key not in ("name", "file"):
                table.setdefault(f"{name} {key}".strip(), []).extend(
                    (device, one) for device in devices or ("",)
                )
    return {key: _merged(key, values) for key, values in table.items()}


def _merged(key: str, values: Sequence[tuple[str, Setting]]) -> Setting:
    first = values[0][1]
    if key.endswith(" file"):
        return Setting(
            hostlist.fold(sorted({device for device, _ in values}, key=_natural)), first.place, first.written
        )
    found = dict.fromkeys(one.value for _, one in values)
    if len(found) == 1:
        return first
    by_value = {value: [device for device, one in values if one.value == value] for value in found}
    text = "; ".join(f"{value} for {hostlist.fold(devices)}" for value, devices in by_value.items())
    return Setting(text, first.place, first.written)


def _natural(name: str) -> tuple[str, int]:
    head = name.rstrip("0123456789")
    return head, int(name[len(head) :] or 0)


def _topology_conf(site: Site, statements: Sequence[Statement]) -> None:
    for statement in statements:
        settings = settings_of("topology.conf", statement, statement.pairs)
        name = settings.get("switchname") or settings.get("blockname")
        if "blocksizes" in settings or "blocklevels" in settings:
            site.block_sizes = settings.get("blocksizes") or settings["blocklevels"]
        if name is None:
            continue
        nodes = site.names(settings["nodes"]) if "nodes" in settings else ()
        below = site.names(settings["switches"]) if "switches" in settings else ()
        if name.value in site.switches:
            site.complain(
                statement.place, f"the switch {quoted(name.value)} is defined twice; the first line counts"
            )
        else:
            site.switches[name.value] = Switch(
                name.value, nodes, below, "blockname" in settings, statement.place
            )


def _other(kind: str) -> Callable[[Site, Sequence[Statement]], None]:
    """A file of which every key is one value: cgroup.conf, slurmdbd.conf."""

    def take(site: Site, statements: Sequence[Statement]) -> None:
        settings = site.others.setdefault(kind, {})
        for statement in statements:
            for pair in statement.pairs:
                put(settings, kind, pair, statement.place)

    return take


_LINES = {
    "nodename": "node",
    "partitionname": "partition",
    "nodeset": "nodeset",
    "downnodes": "downnodes",
    "frontendname": "frontend",
}
_PROGRAMS = ("prolog", "epilog", "prologslurmctld", "epilogslurmctld")  # since 24.05 those of all lines run
_BEGINS = (*_LINES, "name", "switchname", "blockname")  # the first word of a line
_NAMED: dict[str, Callable[[Site, Statement, Settings], None]] = {
    "node": _nodes,
    "partition": _partition,
    "nodeset": _nodeset,
    "downnodes": _downnodes,
    "frontend": _frontend,
}
_FILES: dict[str, Callable[[Site, Sequence[Statement]], None]] = {
    "slurm.conf": _slurm_conf,
    "gres.conf": _gres_conf,
    "topology.conf": _topology_conf,
    JOB_CONTAINER: job_container_conf,
}
