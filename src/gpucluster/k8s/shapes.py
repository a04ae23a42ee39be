"""Write texts of one shape: texts that differ only in words.

A template gives each team the same documents with other names. Such a shape is read and written once, and the words of
each text are put into it. `bench kube` measures it.
"""

import re
from collections.abc import Callable
from functools import lru_cache
from itertools import count

from gpucluster.k8s.manifest import plain, rewrite

# A line with a value in JSON. A word that stands in other text, or is a key, is a part of the shape.
_LINE = re.compile(r'^( *(?:- )*(?:[\w./-]+: )?)(["\[{].*)$', re.MULTILINE)
_STRING = re.compile(r'"([^"\\]*(?:\\.[^"\\]*)*)"(\s*:)?')
# Any length of such a text is written the same: it has nothing to escape, and no space at which a line is folded.
_UNFOLDED = re.compile(r"[!#-\[\]-~]+")
_SHAPES = 256
# The marks of a word. JSON escapes both characters, so no text has them.
_PLAIN, _QUOTED = '"\0"', '"\1"'
_MARK = re.compile(f"{_PLAIN}|{_QUOTED}")


def write(text: str, comment: str = "") -> str:
    """Return `manifest.rewrite(text, comment)` for a text that a template made of values in JSON."""
    words: list[str] = []

    def marked(string: re.Match[str]) -> str:
        word, colon = string.groups()
        if colon is not None or not _UNFOLDED.fullmatch(word):
            return string[0]
        words.append(word)
        return _PLAIN if plain(word) else _QUOTED

    shape = _LINE.sub(lambda line: line[1] + _STRING.sub(marked, line[2]), text)
    return comment + _filling(shape)(*words)


@lru_cache(maxsize=_SHAPES)
def _filling(shape: str) -> Callable[..., str]:
    """Return the function from the words of a text to the text as it is written."""
    word = next(one for one in (f"Word{n}x" for n in count()) if one not in shape)
    numbers = count()
    text = _MARK.sub(lambda mark: f'"{"" if mark[0] == _PLAIN else "0"}{word}{next(numbers)}_"', shape)
    written = rewrite(text).replace("{", "{{").replace("}", "}}")
    return re.sub(f"0?{word}([0-9]+)_", r"{\1}", written).format
