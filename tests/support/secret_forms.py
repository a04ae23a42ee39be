"""The possible forms of a secret in a file, for a scan: raw, base64 at any offset, hex, escaped, compressed."""

import base64
import zlib
from collections.abc import Iterator

PIECE = 24  # bytes: long enough to be unique, short enough to be found in a truncated line


def written_forms(secret: bytes) -> tuple[bytes, ...]:
    """Pieces of the secret in each form; any one of them in a text reveals the secret."""
    return tuple(
        sorted(
            {
                form
                for start in range(0, len(secret) - PIECE + 1, PIECE)
                for form in _of(secret[start : start + PIECE])
            }
        )
    )


def _of(piece: bytes) -> Iterator[bytes]:
    yield piece
    yield piece.hex().encode()
    yield piece.hex().upper().encode()
    yield "".join(f"\\x{byte:02x}" for byte in piece).encode()
    yield repr(piece)[2:-1].encode()
    for shift in range(3):  # base64 encodes groups of three bytes, so the preceding bytes shift it
        whole = piece[shift : shift + (PIECE - shift) // 3 * 3]
        text = base64.b64encode(whole)
        yield from {text, text.translate(bytes.maketrans(b"+/", b"-_"))}


def shows(data: bytes, forms: tuple[bytes, ...], depth: int = 2) -> bool:
    """Whether the data, or archives in it, contain a form; base64 may be broken into lines."""
    flat = data.replace(b"\\n", b"").replace(b"\n", b"").replace(b"\r", b"")
    if any(form in data or form in flat for form in forms):
        return True
    if depth and data.startswith(b"\x1f\x8b"):
        return shows(_inflated(data), forms, depth - 1)
    return False


def _inflated(data: bytes) -> bytes:
    try:
        return zlib.decompressobj(31).decompress(data, 64 << 20)
    except zlib.error:
        return b""
