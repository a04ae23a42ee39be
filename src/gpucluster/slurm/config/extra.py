"""Put the settings of `extra` and `remove` into the rendered slurm.conf. The result is sorted and has each key once."""

import re
from collections.abc import Iterable

from gpucluster.plan.model import SlurmPlan, SlurmSetting
from gpucluster.slurm.owned_keys import LISTS

_COMMENT = "# From `extra` of the spec."
_LAST = "node_reg_mem_percent"  # 24.11 misreads the words after it


def with_settings(text: str, plan: SlurmPlan) -> str:
    """Return slurm.conf with the settings of the plan."""
    lines = text.splitlines()
    for setting in plan.slurm.settings:
        if setting.kind == "node":
            pool = next(pool for pool in plan.pools if pool.name == setting.of)
            starts = tuple(f"NodeName={span.hostlist} " for span, _ in pool.by_start())
            lines = [_on_line(line, setting) if line.startswith(starts) else line for line in lines]
        elif setting.kind == "partition":
            start = f"PartitionName={setting.of} "
            lines = [_on_line(line, setting) if line.startswith(start) else line for line in lines]
    of_file = [one for one in plan.slurm.settings if one.kind == "slurm.conf"]
    return "\n".join(_in_file(lines, of_file)) + "\n"


def _in_file(lines: list[str], settings: Iterable[SlurmSetting]) -> list[str]:
    added: list[str] = []
    for one in settings:
        at = next((i for i, line in enumerate(lines) if _key(line) == one.key.lower()), None)
        if one.value is None:
            lines = [line for line in lines if _key(line) != one.key.lower()]
        elif at is None:
            added.append(f"{one.key}={one.value}")
        else:
            lines[at] = f"{lines[at].partition('=')[0]}={_merged(lines[at].partition('=')[2], one)}"
    if not added:
        return lines
    nodes = next(i for i, line in enumerate(lines) if line.startswith("NodeName="))
    return [*lines[:nodes], _COMMENT, *added, "", *lines[nodes:]]


def _key(line: str) -> str:
    return line.partition("=")[0].strip().lower()


def _merged(ours: str, setting: SlurmSetting) -> str:
    """The site's value; of a list, our words and the site's, which replace those of the same name."""
    value = setting.value or ""
    if setting.key.lower() not in LISTS:
        return value
    words = {word.partition("=")[0].lower(): word for word in (*ours.split(","), *value.split(","))}
    last = words.pop(_LAST, None)
    return ",".join((*words.values(), *(() if last is None else (last,))))


def _on_line(line: str, setting: SlurmSetting) -> str:
    """Replace, drop or add one word of a NodeName or PartitionName line."""
    pattern = re.compile(rf" {re.escape(setting.key)}=\S+", re.IGNORECASE)
    if setting.value is None:
        return pattern.sub("", line)
    word = f" {setting.key}={setting.value}"
    return pattern.sub(lambda _: word, line) if pattern.search(line) else line + word
