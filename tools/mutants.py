"""Change the code in one place, run the tests that execute this place, and count how many changes a test finds: `make mutants`.

    .venv/bin/python tools/mutants.py --count 150 --seed 1

No file changes. All modules are imported once; each mutant is a forked child that replaces the code of the changed function in memory
and runs only the tests that called this function in a first run without a mutant. The choice depends on the seed and on the source alone.
The last line is `killed N of M`; the exit status is 1 below the goal, and 2 if a row of EQUIVALENT matches no line.
"""

import argparse
import ast
import copy
import functools
import gc
import importlib
import itertools
import json
import os
import pkgutil
import random
import resource
import signal
import sys
import tempfile
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FrameType, FunctionType
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOM = ROOT / "src" / "gpucluster"
# What changes, and the tests that shall find it. Names are globs, so a renamed file stays in.
ROOMS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "decide": (("elastic/decide/*.py", "elastic/act*.py"), ("elastic/test_*.py",)),
    "resolve": (("plan/resolve/*.py",), ("plan/**/test_*.py", "slurm/**/test_*.py", "test_golden.py")),
    "rules": (("spec/rules/*.py",), ("spec/test_*.py",)),
    "views": (
        ("slurm/config/*.py",),
        ("slurm/**/test_*.py", "plan/**/test_*.py", "spec/test_extra.py", "test_golden.py"),
    ),
    "consequences": (("gitops/consequences*.py",), ("gitops/**/test_*.py",)),
}
# These start processes or simulate hours: too much work for each mutant.
LEFT_OUT = (
    "*daemon*", "*hook*", "*waiter*", "*kill*", "*failpoint*", "*pitfall*", "*propert*", "*stories*", "*lease*", "*why*",
    "*termination*", "*fleet*", "*monitoring*", "*starved*",
)  # fmt: skip
GOAL = 0.85
FIRST_TESTS, FIRST_FILES = 40, 4
CPU_S = 90  # a mutant that loops counts as killed

SURVIVED, KILLED, LOOPS, NOT_APPLIED, NOT_TESTED = range(5)
WORDS = {
    SURVIVED: "SURVIVED",
    KILLED: "killed",
    LOOPS: "killed (it loops)",
    NOT_APPLIED: "NOT APPLIED",
    NOT_TESTED: "NOT TESTED: pytest itself failed",
}

# A mutant that no test can find, because nothing changes: (file, the changed line, what the mutant does) -> reason.
# A key that matches no line is an error: remove it, or write the line as it is now.
EQUIVALENT: Mapping[tuple[str, str, str], str] = {
    (
        "elastic/decide/evacuation.py",
        "due = min([due, *(at for at in times if at > world.now)])",
        "Gt -> GtE",
    ): "a step at this moment is fresh, so the function has returned already; a rule without a drain has no steps",
    (
        "elastic/decide/facts.py",
        "if incarnation.instance is None:",
        "if ... -> if False",
    ): "without an instance the status is NONE, nothing is listed, and no report has the key None",
    (
        "elastic/decide/facts.py",
        "owned = {one.instance for one in world.memory.incarnations.values() if one.instance}",
        "filter dropped",
    ): "the set then holds None, too, and no instance has the id None",
    (
        "elastic/decide/facts.py",
        "last = max(refused.at if refused else 0.0, spare.launched_at if spare else 0.0)",
        "0.0 -> 1.0",
    ): "both are long before now: the first and the second second of 1970",
    (
        "elastic/decide/facts.py",
        "return max(world.memory.endings.get(instance, 0.0), last) + 300.0 < world.now",
        "0.0 -> 1.0",
    ): "both are long before now: the first and the second second of 1970",
    (
        "elastic/decide/gangs.py",
        "key = ((1, 0), place.pool.name, place.zone, slot)  # after all jobs",
        "0 -> 1",
    ): "each such slot has this number, so it orders nothing, and no job is looked up by it",
    (
        "elastic/decide/jobs.py",
        "return world.memory.breaks.get(_job_key(job), 0) > MAX_RESTARTS",
        "0 -> 1",
    ): "neither 0 nor 1 is above the limit of 5",
    (
        "elastic/decide/launches.py",
        "return min(times.refusal_s * 2.0 ** min(row, 20), times.refusal_max_s)",
        "20 -> 21",
    ): "the longest refusal is reached long before; the number only prevents an overflow",
    (
        "elastic/decide/node_table.py",
        "if order is None:",
        "if ... -> if False",
    ): "each row with this detail has an order",
    (
        "elastic/decide/node_table.py",
        "if phase in some and (instance or not row.if_instance) and (drained or not row.if_drained)",
        "In -> NotIn",
    ): "it runs when the module is imported, before the change in memory; as a change of the file, test_node_table.py finds it",
    (
        "gitops/consequences.py",
        "if not (isinstance(old, Pool) and isinstance(new, Pool)):",
        "And -> Or",
    ): "two pools of different types are never compared",
    (
        "spec/rules/hosts.py",
        'OF_HOSTS, ("the kind of machine", "the host names", "the host addresses"), strict=True',
        "True -> False",
    ): "both are constants of three elements",
    (
        "spec/rules/storage.py",
        "strict=True,",
        "True -> False",
    ): "both are constants of three elements",
    (
        "spec/rules/network.py",
        "for key, meaning in zip(keys, what, strict=True):",
        "True -> False",
    ): "both callers pass constants of two elements",
    (
        "spec/rules/places.py",
        "return _Division(offers, {team.name: mine for team, mine in zip(teams, promised, strict=True)})",
        "True -> False",
    ): "`promised` returns one value for each team",
}


@dataclass(frozen=True, slots=True)
class Mutant:
    """One change of one node of a file's tree."""

    path: Path
    line: int
    number: int  # of the node in `ast.walk`
    variant: int
    what: str

    @property
    def where(self) -> str:
        return f"{self.path.relative_to(ROOT)}:{self.line}"


# --- what can change -------------------------------------------------------------------------------------
_COMPARE: Mapping[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}
Changed = tuple[str, Callable[[], ast.AST]]


def _compare(node: ast.Compare) -> Iterator[Changed]:
    for index, op in enumerate(node.ops):
        other = _COMPARE[type(op)]

        def make(index: int = index, other: type[ast.cmpop] = other) -> ast.AST:
            new = copy.deepcopy(node)
            new.ops[index] = other()
            return new

        yield f"{type(op).__name__} -> {other.__name__}", make


def _bool(node: ast.BoolOp) -> Iterator[Changed]:
    other = ast.Or if isinstance(node.op, ast.And) else ast.And
    yield f"{type(node.op).__name__} -> {other.__name__}", lambda: ast.BoolOp(other(), node.values)


def _unary(node: ast.UnaryOp) -> Iterator[Changed]:
    if isinstance(node.op, ast.Not):
        yield "not x -> x", lambda: node.operand


def _binary(node: ast.BinOp) -> Iterator[Changed]:
    swap = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.FloorDiv, ast.FloorDiv: ast.Mult}
    other = swap.get(type(node.op))
    if other and not any(
        isinstance(x, ast.JoinedStr | ast.Tuple | ast.List) for x in (node.left, node.right)
    ):
        name = f"{type(node.op).__name__} -> {other.__name__}"
        yield name, lambda: ast.BinOp(node.left, other(), node.right)


def _constant(node: ast.Constant) -> Iterator[Changed]:
    if isinstance(node.value, bool):
        yield f"{node.value} -> {not node.value}", lambda: ast.Constant(not node.value)
    elif isinstance(node.value, int | float):
        yield f"{node.value} -> {node.value + 1}", lambda: ast.Constant(node.value + 1)


def _call(node: ast.Call) -> Iterator[Changed]:
    if isinstance(node.func, ast.Name) and node.func.id in _CALLS:
        other = _CALLS[node.func.id]
        name = ast.Name(other, ast.Load())
        yield f"{node.func.id} -> {other}", lambda: ast.Call(name, node.args, node.keywords)


def _branch(node: ast.If | ast.IfExp) -> Iterator[Changed]:
    for value in (True, False):

        def make(value: bool = value) -> ast.AST:
            new = copy.copy(node)
            new.test = ast.copy_location(ast.Constant(value), node.test)
            return new

        yield f"if ... -> if {value}", make


def _filter(node: ast.comprehension) -> Iterator[Changed]:
    if node.ifs:
        yield "filter dropped", lambda: ast.comprehension(node.target, node.iter, [], node.is_async)


def _statement(node: ast.Expr | ast.AugAssign) -> Iterator[Changed]:
    if not isinstance(getattr(node, "value", None), ast.Constant):
        yield "statement dropped", ast.Pass


_CHANGES: Mapping[type[ast.AST], Callable[[Any], Iterator[Changed]]] = {
    ast.Compare: _compare,
    ast.BoolOp: _bool,
    ast.UnaryOp: _unary,
    ast.BinOp: _binary,
    ast.Constant: _constant,
    ast.Call: _call,
    ast.If: _branch,
    ast.IfExp: _branch,
    ast.comprehension: _filter,
    ast.Expr: _statement,
    ast.AugAssign: _statement,
}


def mutants_of(path: Path) -> list[Mutant]:
    """All mutants of a file: inside functions, without texts, annotations, defaults and decorators."""
    tree = ast.parse(path.read_text())
    inside = _inside(tree)
    found: list[Mutant] = []
    for number, node in enumerate(ast.walk(tree)):
        if id(node) not in inside:
            continue
        for variant, (what, _) in enumerate(_CHANGES.get(type(node), lambda _: iter(()))(node)):
            found.append(Mutant(path, inside[id(node)], number, variant, what))
    return found


def _inside(tree: ast.AST) -> dict[int, int]:
    """The nodes that belong to code of a function, each with its line."""
    found: dict[int, int] = {}

    def enter(node: ast.AST, line: int) -> None:
        if isinstance(node, ast.JoinedStr | ast.Raise | ast.Assert):
            return
        line = getattr(node, "lineno", line)
        found[id(node)] = line
        for name, value in ast.iter_fields(node):
            if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    enter(child, line)

    for node in ast.walk(tree):
        if id(node) not in found and isinstance(node, ast.FunctionDef | ast.Lambda):
            for child in node.body if isinstance(node.body, list) else [node.body]:
                enter(child, node.lineno)
    return found


def mutated(mutant: Mutant) -> ast.Module:
    """The file's tree with that change."""
    tree = ast.parse(mutant.path.read_text())
    node = list(ast.walk(tree))[mutant.number]
    new = list(_CHANGES[type(node)](node))[mutant.variant][1]()

    class Swap(ast.NodeTransformer):
        def visit(self, one: ast.AST) -> Any:
            if one is node:
                return ast.copy_location(new, node) if hasattr(node, "lineno") else new
            return self.generic_visit(one)

    return ast.fix_missing_locations(Swap().visit(tree))


def chosen(count: int, seed: int, rooms: Sequence[str] = tuple(ROOMS)) -> list[tuple[str, list[Mutant]]]:
    """So many mutants of these rooms, the same for each run of a seed: each file by its size, in each file the kinds of change in turn."""
    files = [(room, path) for room in rooms for path in sorted(_found(ROOM, ROOMS[room][0]))]
    piles = [(room, _shuffled(path, seed)) for room, path in files]
    total = sum(len(pile) for _, pile in piles)
    found: dict[str, list[Mutant]] = {room: [] for room in rooms}
    share, taken = 0.0, 0
    for room, pile in piles:
        share += count * len(pile) / total
        more = pile[: round(share) - taken]
        taken += len(more)
        found[room] += more
    return list(found.items())


def _found(folder: Path, globs: Sequence[str]) -> set[Path]:
    return {path for glob in globs for path in folder.glob(glob)}


def _shuffled(path: Path, seed: int) -> list[Mutant]:
    """The mutants of a file in an order that depends on the seed: one of each kind, then a second of each kind."""
    dice = random.Random(f"{seed} {path.relative_to(ROOT)}")  # noqa: S311 -- the same each time
    kinds: dict[str, list[Mutant]] = defaultdict(list)
    for one in mutants_of(path):
        if _key(one) not in EQUIVALENT:
            kinds[one.what].append(one)
    for name in sorted(kinds):
        dice.shuffle(kinds[name])
    order = sorted(kinds)
    dice.shuffle(order)
    rows = itertools.zip_longest(*(kinds[name] for name in order))
    return [one for row in rows for one in row if one is not None]


def _key(one: Mutant) -> tuple[str, str, str]:
    line = one.path.read_text().splitlines()[one.line - 1].strip()
    return str(one.path.relative_to(ROOM)), line, one.what


def stale(known: Mapping[tuple[str, str, str], str]) -> list[tuple[str, str, str]]:
    """The keys that name no mutant of the sources: the file, the line or the change does not exist any more."""
    files = {name: ROOM / name for name, _, _ in known}
    exist = {_key(one) for path in files.values() if path.is_file() for one in mutants_of(path)}
    return [key for key in known if key not in exist]


# --- which tests execute a function -------------------------------------------------------------------------
class Calls:
    """A pytest plugin: which tests call which function of the sources, and how long each test takes."""

    def __init__(self, files: frozenset[str]) -> None:
        self.files, self.test = files, ""
        self.called: dict[tuple[str, int], set[str]] = defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.failed: list[str] = []

    def trace(self, frame: FrameType, event: str, _arg: object) -> None:
        code = frame.f_code
        if code.co_filename in self.files:
            self.called[code.co_filename, code.co_firstlineno].add(self.test)

    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.test = nodeid

    def pytest_collectstart(self, collector: Any) -> None:
        self.test = (
            f"{collector.nodeid}::"  # what a module computes as it is imported concerns all of its tests
        )

    def pytest_runtest_logreport(self, report: Any) -> None:
        self.seconds[report.nodeid] = self.seconds.get(report.nodeid, 0.0) + report.duration
        if report.failed:
            self.failed.append(report.nodeid)

    def tests_of(self) -> dict[str, list[str]]:
        """`FILE:LINE of a function` -> its tests, the quickest first."""
        found: dict[str, list[str]] = {}
        for (file, line), marks in self.called.items():
            modules = tuple(mark for mark in marks if mark.endswith("::"))
            tests = {t for t in self.seconds if t in marks or (modules and t.startswith(modules))}
            found[f"{file}:{line}"] = sorted(tests, key=lambda t: (self.seconds[t], t))
        return found


class Only:
    """A pytest plugin: these tests alone, in this order."""

    def __init__(self, tests: Sequence[str]) -> None:
        self.order = {test: number for number, test in enumerate(tests)}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        items[:] = sorted(
            (one for one in items if one.nodeid in self.order), key=lambda one: self.order[one.nodeid]
        )


def _pytest(arguments: Sequence[str], plugin: object) -> int:
    common = (
        "-q",
        "--no-header",
        "--tb=no",
        "--assert=plain",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:xdist",
        "-p",
        "no:randomly",
    )
    return int(pytest.main([*common, *arguments], plugins=[plugin]))


def covered(tests: Sequence[Path], files: frozenset[str]) -> tuple[dict[str, list[str]], dict[str, float]]:
    """Run all once, in a child, and note who calls what."""

    def work(out: Path) -> None:
        calls = Calls(files)
        sys.settrace(calls.trace)
        _pytest([str(t) for t in tests], calls)
        sys.settrace(None)
        out.write_text(json.dumps([calls.tests_of(), calls.seconds, calls.failed]))

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "calls.json"
        os.waitpid(_fork(functools.partial(work, out), CPU_S * 20), 0)
        called, seconds, failed = json.loads(out.read_text())
    for test in failed:
        print(f"left out, for it fails without a mutant: {test}")
    return {key: [one for one in some if one not in failed] for key, some in called.items()}, seconds


# --- one mutant ------------------------------------------------------------------------------------------
def _fork(work: Callable[[], object], cpu_s: int) -> int:
    """A silent child that does it and exits with what it returns."""
    sys.stdout.flush()
    child = os.fork()
    if child:
        return child
    status = 99
    try:
        resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 5))
        null = os.open(os.environ.get("MUTANTS_LOG", os.devnull), os.O_RDWR | os.O_CREAT | os.O_APPEND)
        for number in (0, 1, 2):
            os.dup2(null, number)
        status = int(work() or 0)  # type: ignore[call-overload]
    except BaseException:  # noqa: BLE001 -- the exit status says it
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(status)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def apply(mutant: Mutant) -> int:
    """Replace the code of each living function of that file; how many."""
    name = str(mutant.path)
    numbered: list[dict[tuple[str, int, int], CodeType]] = []
    for tree in (ast.parse(mutant.path.read_text()), mutated(mutant)):
        counts: dict[tuple[str, int], int] = defaultdict(int)
        table: dict[tuple[str, int, int], CodeType] = {}
        for code in _codes(compile(tree, name, "exec", dont_inherit=True)):
            key = (code.co_qualname, code.co_firstlineno)
            table[(*key, counts[key])] = code
            counts[key] += 1
        numbered.append(table)
    before, after = numbered
    new = {code: after[key] for key, code in before.items() if key in after and after[key] != code}
    swapped = 0
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == name and one.__code__ in new:
            one.__code__ = new[one.__code__]
            swapped += 1
    return swapped


def function_of(mutant: Mutant) -> list[int]:
    """First lines of the functions around it, the innermost first."""
    tree = ast.parse(mutant.path.read_text())
    target = list(ast.walk(tree))[mutant.number]
    around: list[int] = []

    def search(node: ast.AST, lines: tuple[int, ...]) -> None:
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
            lines = (first, *lines)
        elif isinstance(node, ast.Lambda | ast.GeneratorExp | ast.ListComp | ast.SetComp | ast.DictComp):
            lines = (node.lineno, *lines)
        if node is target:
            around.extend(lines)
        for child in ast.iter_child_nodes(node):
            search(child, lines)

    search(tree, ())
    return around


# pytest's exit status: a mutant that breaks the import of a test file interrupts pytest. No tests (5) or a wrong call (4) are no verdict.
_VERDICTS: Mapping[int, int] = {
    pytest.ExitCode.OK: SURVIVED,
    pytest.ExitCode.TESTS_FAILED: KILLED,
    pytest.ExitCode.INTERRUPTED: KILLED,
}


def _in_turn(tests: Sequence[str]) -> list[list[str]]:
    """The files of these tests: those of the quickest tests, then all others. Most of a run is pytest's collection of files."""
    files = list(dict.fromkeys(test.partition("::")[0] for test in tests))
    first = list(dict.fromkeys(test.partition("::")[0] for test in tests[:FIRST_TESTS]))[:FIRST_FILES]
    return [some for some in (first, [one for one in files if one not in first]) if some]


def verdict(mutant: Mutant, tests: Sequence[str]) -> int:
    """Run these tests over the mutant in a child."""

    def work() -> int:
        if not apply(mutant):
            return NOT_APPLIED
        for files in _in_turn(tests):
            result = _VERDICTS.get(_pytest(["-x", *files], Only(tests)), NOT_TESTED)
            if result != SURVIVED:
                return result
        return SURVIVED

    _, status = os.waitpid(_fork(work, CPU_S), 0)
    if os.WIFSIGNALED(status):
        return LOOPS if os.WTERMSIG(status) in (signal.SIGXCPU, signal.SIGKILL) else KILLED
    code = os.WEXITSTATUS(status)
    return code if code in WORDS else NOT_TESTED


def _load_everything() -> None:
    """What a child needs, once: libraries, and all modules but those that only the sandbox's machines import."""
    os.environ["HYPOTHESIS_PROFILE"] = "mutants"
    sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests"), str(ROOT / "tests" / "sandbox")]
    os.chdir(ROOT)
    for name in ("pytest", "hypothesis", "boto3", "jinja2", "ruamel.yaml", "ClusterShell.NodeSet"):
        importlib.import_module(name)
    gpucluster = importlib.import_module("gpucluster")
    for module in pkgutil.walk_packages(gpucluster.__path__, "gpucluster."):
        if (
            not module.name.endswith("__main__")
            and ".sandbox.images" not in module.name
            and ".suite" not in module.name
        ):
            importlib.import_module(module.name)


def main(argv: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--count", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument(
        "--room", choices=sorted(ROOMS), action="append", help="all mutants from this room; repeatable"
    )
    wanted = parser.parse_args(argv)
    if found := stale(EQUIVALENT):
        for file, line, what in found:
            print(f"EQUIVALENT has a row that matches no line: {file}: {what}: {line}", file=sys.stderr)
        return 2
    _load_everything()
    total, survived = 0, list[Mutant]()
    for room, picked in chosen(wanted.count, wanted.seed, wanted.room or tuple(ROOMS)):
        total += len(picked)
        survived += _survivors(room, picked)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN), resource.getrusage(resource.RUSAGE_SELF)
    print(f"{sum(use.ru_utime + use.ru_stime for use in spent):.0f} s of CPU")
    for one in survived:
        print(f"survivor: {one.where}: {one.what}")
    print(f"killed {total - len(survived)} of {total}")
    return int(len(survived) > (1 - GOAL) * total)


def _survivors(room: str, picked: Sequence[Mutant]) -> list[Mutant]:
    """Run the tests of this room for each of its mutants."""
    found = _found(ROOT / "tests" / "unit", ROOMS[room][1])
    tests = sorted(path for path in found if not any(path.match(glob) for glob in LEFT_OUT))
    called, seconds = covered(tests, frozenset(str(one.path) for one in picked))
    print(f"{room}: {len(picked)} mutants, {len(seconds)} tests, {sum(seconds.values()):.0f} s", flush=True)
    survived: list[Mutant] = []
    for one in picked:
        lines = function_of(one)
        own = next((called[key] for line in lines if (key := f"{one.path}:{line}") in called), [])
        result = verdict(one, own) if own else SURVIVED
        if result not in (KILLED, LOOPS):
            survived.append(one)
        source = one.path.read_text().splitlines()[one.line - 1].strip()
        print(f"{WORDS[result]}: {one.where}: {one.what} ({len(own)} tests): {source}", flush=True)
    return survived


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
