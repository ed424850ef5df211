"""What was asked and answered, as it lies in the table ``request_payload``: redacted, compressed.

Redaction looks for what is shaped like a secret: it cannot know every one, so payloads are off
unless ``store.payloads`` says so, and kept for ``store.keep_payload_days``.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Connection, select

from .dates import nearest
from .record import PayloadRecord
from .schema import request_payload

CODEC = "zlib"
BLANK = "[redacted]"

_WHOLE = re.compile(
    r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)"
    r"|\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}"
    r"|\bgh[opsur]_[A-Za-z0-9]{20,}|\bgithub_pat_[A-Za-z0-9_]{20,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"
    r"|\bas-[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"
    r"|\bhf_[A-Za-z0-9]{20,}"
    r"|\bgl(?:pat|dt|rt|cbt|ptt|ft|soat)-[A-Za-z0-9_.-]{16,}"
    r"|\bxox[abeoprs]-[A-Za-z0-9-]{10,}"
    r"|\bAIza[A-Za-z0-9_-]{30,}"
    r"|\beyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]+",
    re.DOTALL,
)
_NAME = (
    r"(?:api[_-]?key|passwd|password|passphrase|secret|token|credentials?|authorization"
    r"|(?:secret|access|private)[_-]?(?:access[_-]?)?key)"
    r"""\\?["']?[ ]{0,4}[:=][ ]{0,4}"""
)
_NAMED = re.compile(
    rf"""({_NAME}(?:\\?["'](?:Bearer |Basic )?(?=[^"'\\\n]{{6}})|(?:Bearer |Basic )?))"""
    r"""(?!\[redacted\])(?:(?:(?<=["'])|(?<=["']Bearer )|(?<=["']Basic ))[^"'\\\n]+"""
    r"""|[^\s"'\\,;&}]{6,})""",
    re.IGNORECASE,
)
_PHRASE = re.compile(
    r"""((?:passwd|password|passphrase)[ ]{0,4}:[ ]{1,4})(?!\[redacted\])([^\n"'\\]{6,200})""",
    re.IGNORECASE,
)
"""A password of several words, to the end of its line."""
_IN_URL = re.compile(r"""(://[^\s:/@"']{0,100}:)([^\s/@"'\\]{1,200})@""")


_PIECE = re.compile(
    r'"(content|text|refusal|arguments|partial_json|delta|thinking|reasoning_content)"'
    r'(?P<colon>:[ ]?)"((?:[^"\\]|\\.)*)"'
)
_PLACE = re.compile(r'"(?:index|output_index|content_index)":[ ]?(\d+)')


@dataclass(frozen=True, slots=True)
class Payload:
    """kind: "request" or "response". redacted: how many places were blanked out."""

    kind: str
    text: str
    redacted: int


def redact(text: str) -> tuple[str, int]:
    """The text with what looks like secrets blanked out, and how many there were.

    In a stream (server-sent events) a secret comes in pieces: text that holds one stands, blanked
    out, where its first piece was, and the other pieces are empty.
    """
    joined = 0
    if text.startswith(("data:", "event:", ":")):
        text, joined = _redact_pieces(text)
    text, found = _redact_whole(text)
    return text, joined + found


def _redact_pieces(stream: str) -> tuple[str, int]:
    """Blank out what only the pieces of a text together tell to be a secret."""
    texts: dict[tuple[str, ...], list[str]] = {}
    lines = stream.split("\n")
    places = [tuple(_PLACE.findall(line)) for line in lines]
    for line, place in zip(lines, places, strict=True):
        for name, _, piece in _PIECE.findall(line):
            texts.setdefault((name, *place), []).append(piece)
    found = {key: _redact_whole("".join(pieces)) for key, pieces in texts.items()}
    told = {key: text for key, (text, count) in found.items() if count}
    if not told:
        return stream, 0

    def blanked(match: re.Match[str], place: tuple[str, ...]) -> str:
        key = (match[1], *place)
        if key not in told:
            return match[0]
        text, told[key] = told[key], ""
        return f'"{match[1]}"{match["colon"]}"{text}"'

    redone = [
        _PIECE.sub(lambda match, place=place: blanked(match, place), line)
        for line, place in zip(lines, places, strict=True)
    ]
    return "\n".join(redone), sum(count for _, count in found.values())


def _redact_whole(text: str) -> tuple[str, int]:
    text, whole = _WHOLE.subn(BLANK, text)
    text, within = _IN_URL.subn(rf"\g<1>{BLANK}@", text)
    text, phrases = _PHRASE.subn(rf"\g<1>{BLANK}", text)
    text, named = _NAMED.subn(rf"\g<1>{BLANK}", text)
    return text, whole + within + phrases + named


def packed(record: PayloadRecord) -> dict[str, Any]:
    """The record as a row."""
    text, redacted = redact(record.body)
    plain = text.encode(errors="replace")
    return {
        "request_id": record.id,
        "kind": record.kind,
        "ts_ms": nearest(record.ts_ms),
        "codec": CODEC,
        "redacted": redacted,
        "plain_bytes": len(plain),
        "body": zlib.compress(plain),
    }


def payloads(connection: Connection, request_id: str) -> list[Payload]:
    """Those kept of a request: what was asked, then what was answered."""
    c = request_payload.c
    query = select(c.kind, c.body, c.redacted).where(c.request_id == request_id).order_by(c.kind)
    return [
        Payload(kind, zlib.decompress(body).decode(), redacted)
        for kind, body, redacted in connection.execute(query)
    ]
