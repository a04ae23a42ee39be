"""Values as JSON, which is YAML too: what a template is given can never end its own field.

JSON's escapes for characters beyond 16 bits are pairs that YAML does not join, so these stay as they are; control
characters and line ends of Unicode, which JSON leaves and YAML refuses or reads as ends, are escaped.
"""

import json
import re

_UNREAD = re.compile("[\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")


def scalar(value: object) -> str:
    """One line of JSON."""
    return _UNREAD.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(value, ensure_ascii=False))
