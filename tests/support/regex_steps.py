"""Count the steps of a regular expression by a matcher that goes back as Python's does. No clock decides what grows with the square."""

import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from re import _constants as c  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]
from typing import Any

Nodes = Sequence[tuple[Any, Any]]
After = Callable[[int], bool]
SIZES = (6, 12, 24, 48)
MOST = 40_000  # steps of one text: a linear expression needs far fewer
UNBOUNDED = 64  # a repeat that may take as much is taken for one without an end
POOL = "a0 =:/.-_,\"'\\({[<\n\t@#%$&;|"
REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)


class TooManyStepsError(Exception):
    """The text costs more than MOST."""


@dataclass
class Matcher:
    """One expression: its steps for a text by `search`, `findall`, `match` or `fullmatch`."""

    expression: str
    flags: int = 0

    def __post_init__(self) -> None:
        compiled = re.compile(self.expression, self.flags)
        self.flags = compiled.flags
        self.nodes: Nodes = list(parser.parse(self.expression, self.flags))
        self.text, self.steps = "", 0

    def cost(self, method: str, text: str) -> int:
        self.text, self.steps = text, 0
        ends: list[int] = []

        def ended(at: int) -> bool:
            ends.append(at)
            return method != "fullmatch" or at == len(text)

        if method in ("match", "fullmatch"):
            self._match(self.nodes, 0, 0, ended)
            return self.steps
        start = 0
        while start <= len(text):
            if self._match(self.nodes, 0, start, ended):
                if method == "search":
                    break
                start = max(start + 1, ends[-1])
            else:
                start += 1
        return self.steps

    def _match(self, nodes: Nodes, i: int, at: int, after: After) -> bool:
        self._step()
        if i == len(nodes):
            return after(at)
        return self._node(nodes[i], at, lambda here: self._match(nodes, i + 1, here, after))

    def _node(self, node: tuple[Any, Any], at: int, rest: After) -> bool:  # noqa: PLR0911  one for each kind
        kind, value = node
        if kind in REPEATS:
            return self._repeat(kind, value, at, rest)
        if kind is c.BRANCH:
            return any(self._match(one, 0, at, rest) for one in value[1])
        if kind is c.SUBPATTERN:
            return self._match(value[3], 0, at, rest)
        if kind is c.ATOMIC_GROUP:
            ends: list[int] = []
            return self._match(value, 0, at, lambda here: ends.append(here) or True) and rest(ends[0])
        if kind in (c.ASSERT, c.ASSERT_NOT):
            direction, one = value
            here = at if direction > 0 else at - one.getwidth()[0]
            found = here >= 0 and self._match(one, 0, here, lambda _: True)
            return found is (kind is c.ASSERT) and rest(at)
        if kind is c.AT:
            return self._stands(value, at) and rest(at)
        if kind in (c.GROUPREF, c.GROUPREF_EXISTS):
            return rest(at)
        return at < len(self.text) and accepts((kind, value), self.text[at], self.flags) and rest(at + 1)

    def _repeat(self, kind: Any, value: Any, at: int, rest: After) -> bool:
        least, most, body = value
        if len(body) == 1 and is_single(body[0]):
            return self._of_one(kind, (least, most, body[0]), at, rest)

        def again(count: int, here: int, before: int) -> bool:
            self._step()
            more = count < most and (here != before or count < max(least, 1))
            enough = count >= least
            tries: list[Callable[[], bool]] = []
            if more:
                tries.append(lambda: self._match(body, 0, here, lambda to: again(count + 1, to, here)))
            if enough:
                tries.append(lambda: rest(here))
            return any(one() for one in (tries if kind is not c.MIN_REPEAT else reversed(tries)))

        return again(0, at, -1)

    def _of_one(self, kind: Any, value: tuple[int, int, Any], at: int, rest: After) -> bool:
        """A repeat of one character, which Python counts first and then gives back."""
        least, most, node = value
        run = 0
        while run < most and at + run < len(self.text) and accepts(node, self.text[at + run], self.flags):
            run += 1
            self._step()
        if kind is c.POSSESSIVE_REPEAT:
            return run >= least and rest(at + run)
        counts = range(run, least - 1, -1) if kind is c.MAX_REPEAT else range(least, run + 1)
        return any(rest(at + one) for one in counts)

    def _stands(self, where: Any, at: int) -> bool:
        before = self.text[at - 1] if at else ""
        here = self.text[at] if at < len(self.text) else ""
        if where in (c.AT_BEGINNING, c.AT_BEGINNING_STRING):
            lines = where is c.AT_BEGINNING and self.flags & re.MULTILINE
            return not at or bool(lines and before == "\n")
        if where in (c.AT_END, c.AT_END_STRING):
            if not here:
                return True
            lines = self.flags & re.MULTILINE or at == len(self.text) - 1
            return where is c.AT_END and bool(lines) and here == "\n"
        return (_is_word(before) != _is_word(here)) is (where is c.AT_BOUNDARY)

    def _step(self) -> None:
        self.steps += 1
        if self.steps > MOST:
            raise TooManyStepsError


def growth(expression: str, flags: int, method: str) -> tuple[float, str]:
    """Return the worst growth of the steps when a text is doubled, and the text's part: 2 is linear, and 4 a square."""
    sys.setrecursionlimit(20_000)
    matcher = Matcher(expression, flags)
    worst = (0.0, "")
    for before, part, after in attacks(matcher.nodes, matcher.flags):
        try:
            steps = [matcher.cost(method, before + part * n + after) for n in SIZES]
        except TooManyStepsError:
            return 99.0, before + part
        added = [max(1, more - less) for less, more in pairwise(steps)]
        worst = max(worst, (min(more / less for less, more in pairwise(added)), before + part))
    return worst


def attacks(nodes: Nodes, flags: int) -> Iterator[tuple[str, str, str]]:
    """Texts that fill each repeat without an end, and that begin again and again what comes before it; each fails at its end."""
    seen: set[tuple[str, str]] = set()
    for before, body in _repeats(nodes, flags):
        for filled in _fillings(body, flags):
            for start, part in ((before, filled), ("", before + filled), ("", before)):
                if part and (start, part) not in seen:
                    seen.add((start, part))
                    yield start, part, "\0"


def _repeats(nodes: Nodes, flags: int, before: str = "") -> Iterator[tuple[str, Nodes]]:
    for i, (kind, value) in enumerate(nodes):
        here = before + sample(nodes[:i], flags)
        if kind in REPEATS:
            if value[1] >= UNBOUNDED:
                yield here, value[2]
            yield from _repeats(value[2], flags, here)
        elif kind is c.BRANCH:
            for one in value[1]:
                yield from _repeats(one, flags, here)
        elif kind is c.SUBPATTERN:
            yield from _repeats(value[3], flags, here)


def _fillings(body: Nodes, flags: int) -> Iterator[str]:
    if len(body) == 1 and is_single(body[0]):
        found = [one for one in POOL if accepts(body[0], one, flags)]
        yield from found[:4]
    yield sample(body, flags)


def sample(nodes: Nodes, flags: int) -> str:
    """Return a short text that the nodes match."""
    return "".join(_sample_of(kind, value, flags) for kind, value in nodes)


def _sample_of(kind: Any, value: Any, flags: int) -> str:  # noqa: PLR0911  one for each kind
    if kind in REPEATS:
        return sample(value[2], flags) * max(1, min(value[0], 8)) if value[0] else ""
    if kind is c.BRANCH:
        return sample(value[1][0], flags)
    if kind is c.SUBPATTERN:
        return sample(value[3], flags)
    if kind is c.ATOMIC_GROUP:
        return sample(value, flags)
    if kind is c.LITERAL:
        return chr(value)
    if is_single((kind, value)):
        letters = [*POOL, *map(chr, range(33, 127))]
        return next((one for one in letters if accepts((kind, value), one, flags)), "")
    return ""


def is_single(node: tuple[Any, Any]) -> bool:
    return node[0] in (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)


def accepts(node: tuple[Any, Any], letter: str, flags: int) -> bool:
    kind, value = node
    if kind is c.ANY:
        return bool(flags & re.DOTALL) or letter != "\n"
    forms = {letter, letter.lower(), letter.upper()} if flags & re.IGNORECASE else {letter}
    if kind is c.LITERAL:
        return any(ord(one) == value for one in forms if len(one) == 1)
    if kind is c.NOT_LITERAL:
        return all(ord(one) != value for one in forms if len(one) == 1)
    items = value[1:] if value[0][0] is c.NEGATE else value
    found = any(_in(item, one) for item in items for one in forms if len(one) == 1)
    return found is (value[0][0] is not c.NEGATE)


def _in(item: tuple[Any, Any], letter: str) -> bool:
    kind, value = item
    if kind is c.LITERAL:
        return ord(letter) == value
    if kind is c.RANGE:
        return value[0] <= ord(letter) <= value[1]
    kinds = {
        c.CATEGORY_DIGIT: letter.isdigit(),
        c.CATEGORY_SPACE: letter.isspace(),
        c.CATEGORY_WORD: _is_word(letter),
    }
    negated = {
        c.CATEGORY_NOT_DIGIT: c.CATEGORY_DIGIT,
        c.CATEGORY_NOT_SPACE: c.CATEGORY_SPACE,
        c.CATEGORY_NOT_WORD: c.CATEGORY_WORD,
    }
    return kinds[value] if value in kinds else not kinds[negated[value]]


def _is_word(letter: str) -> bool:
    return letter == "_" or letter.isalnum()
