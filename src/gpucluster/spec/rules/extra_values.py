"""The value of a key of `extra`: its form, its words, its plugins."""

from gpucluster import catalog as facts_of
from gpucluster.catalog import SlurmFacts
from gpucluster.catalog.slurm_values import OneOf, Plugins, Words, slurm_values
from gpucluster.slurm.owned_keys import LISTS, REFUSED_WORDS
from gpucluster.spec.decode import did_you_mean
from gpucluster.text import quoted

Problem = tuple[str, str]  # id and message


def of_value(facts: SlurmFacts, kind: str, low: str, value: str) -> Problem | None:
    """Return what is wrong with a value; None: Slurm takes it."""
    key = facts_of.slurm_keys()[kind][low]
    form = slurm_values().form(kind, low, key.type)
    if form is not None and not form.takes(value):
        near = did_you_mean(value, form.words) if isinstance(form, OneOf | Words) else ""
        return "extra-value", f"{key.name} is {form.what}, found {quoted(value)}{near}"
    kind_of_plugin = form.kind if isinstance(form, Plugins) else ""
    return (
        (_of_words(facts, key.name, value) if kind == "slurm.conf" else None)
        or _of_clash(kind, key.name, value)
        or _of_plugins(facts, value, kind_of_plugin)
    )


def _of_words(facts: SlurmFacts, key: str, value: str) -> Problem | None:
    ours = {word.lower() for word in LISTS.get(key.lower(), ())}
    words = value.split(",")
    owned = [name for name in (word.partition("=")[0] for word in words) if name.lower() in ours]
    if owned:
        return "extra-owned", f"gpucluster writes the word {owned[0]} of {key} itself"
    refused = REFUSED_WORDS.get(key.lower(), {})
    for word in words:
        if why := refused.get(word.partition("=")[0].lower()):
            return "extra-owned", f"{word} of {key} does not go with what gpucluster writes: {why}"
    unknown = facts.unknown_words(key, value)
    if unknown:
        near = did_you_mean(unknown[0], sorted(facts.tokens[key]))
        return "extra-value", f"Slurm {facts.version} does not know the word {quoted(unknown[0])} of {key}{near}"  # fmt: skip
    for word in words:
        problem = slurm_values().word_problem(key, word)
        if problem:
            return "extra-value", f"{word.partition('=')[0]} of {key} is {problem}, found {quoted(word)}"
    return None


def _of_clash(kind: str, key: str, value: str) -> Problem | None:
    clash = slurm_values().clash(kind, key, value)
    if not clash:
        return None
    return "extra-value", f"{key} takes one of {' and '.join(clash)}, not both"


def _of_plugins(facts: SlurmFacts, value: str, kind: str) -> Problem | None:
    unknown = facts.unknown_plugins(value, kind)
    if not unknown:
        return None
    near = did_you_mean(unknown[0], sorted(facts.plugins))
    return "extra-value", f"Slurm {facts.version} has no plugin {quoted(unknown[0])}{near}"
