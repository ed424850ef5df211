"""The string formats of JSON Schema 2020-12, checked without further packages.

date-time, date, time and duration: RFC 3339; email: RFC 5321 in outline; hostname: RFC 1123; uri:
RFC 3986 in outline, iri the same with any letters; uri-template: RFC 6570 in outline; json-pointer:
RFC 6901; regex: ECMA-262 as far as an engine here reads it. Other formats are annotations.
"""

from __future__ import annotations

import datetime
import ipaddress
import re
import uuid
from functools import lru_cache, partial

from jsonschema import FormatChecker

from .pattern import check_pattern

_TIME = r"(?:[01]\d|2[0-3]):[0-5]\d:(?:[0-5]\d|60)(?:\.\d+)?(?:[Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)"
_PATTERNS = {
    "time": _TIME,
    "duration": (
        r"P(?:\d+W|(?=[\dT])(?:\d+Y)?(?:\d+M)?(?:\d+D)?"
        r"(?:T(?=\d)(?:\d+H)?(?:\d+M)?(?:\d+S)?)?)"
    ),
    "email": (
        r'(?:"(?:[^"\\]|\\.)+"|[^\s"@]+)'
        r"@(?:\[[^\]\s]+\]|[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?)"
    ),
    "hostname": (
        r"(?=.{1,253}\Z)[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?"
        r"(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?)*"
    ),
    "uri": r"[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]*",
    "iri": r"[A-Za-z][A-Za-z0-9+.-]*:[^\s<>\"{}|\\^`]*",
    "uri-reference": r"[!#-;=?-\[\]_a-z~]*",
    "iri-reference": r"[^\s<>\"{}|\\^`]*",
    "uri-template": r"(?:[^\s<>\"{}|\\^`]|\{[+#./;?&=,!@|]?[^\s{}<>\"\\^`]+\})*",
    "idn-email": r"[^\s@]+@[^\s@]+",
    "idn-hostname": r"[^\s.@:/\\]+(?:\.[^\s.@:/\\]+)*\.?",
    "json-pointer": r"(?:/(?:[^~/]|~[01])*)*",
    "relative-json-pointer": r"(?:0|[1-9]\d*)(?:#|(?:/(?:[^~/]|~[01])*)*)",
}
_UNICODE = frozenset({"iri", "iri-reference", "uri-template", "idn-email", "idn-hostname"})
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)


def _date(text: str) -> bool:
    if not _DATE.fullmatch(text):
        return False
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        # Python's calendar begins with year 1, RFC 3339's with year 0 (a leap year).
        return text.startswith("0000") and _date("2000" + text[4:])
    return True


def _date_time(text: str) -> bool:
    return len(text) > 11 and text[10] in "Tt " and _date(text[:10]) and _matches("time", text[11:])


def _matches(name: str, text: str) -> bool:
    flags = 0 if name in _UNICODE else re.ASCII
    return re.fullmatch(_PATTERNS[name], text, flags) is not None


def _regex(text: str) -> bool:
    """Compiled only: nothing is searched with a pattern that may backtrack."""
    if check_pattern(text) is None:
        return True
    try:
        re.compile(text)
    except (re.error, OverflowError, RecursionError):
        return False
    return True


def _uuid(text: str) -> bool:
    try:
        return str(uuid.UUID(text)) == text.lower()
    except ValueError:
        return False


def _address(kind: type[ipaddress.IPv4Address] | type[ipaddress.IPv6Address], text: str) -> bool:
    try:
        kind(text)
    except ValueError:
        return False
    return "%" not in text


def holds(name: str, text: str) -> bool:
    """Whether ``text`` is of the named format; True for a format that is not known here."""
    if name in _PATTERNS:
        return _matches(name, text)
    match name:
        case "date":
            return _date(text)
        case "date-time":
            return _date_time(text)
        case "uuid":
            return _uuid(text)
        case "ipv4":
            return _address(ipaddress.IPv4Address, text)
        case "ipv6":
            return _address(ipaddress.IPv6Address, text)
        case "regex":
            return _regex(text)
    return True


MASKED_FORMATS = frozenset(
    {
        *("date", "date-time", "duration", "email", "hostname"),
        *("ipv4", "ipv6", "time", "uri", "uuid"),
    }
)
"""Those that the default mask engine knows by name."""
KNOWN_FORMATS = frozenset(_PATTERNS) | MASKED_FORMATS | {"regex"}


def mask_pattern(name: str) -> str | None:
    """A pattern that every string of the format matches, for a mask that does not know it."""
    pattern = _PATTERNS.get(name)
    return None if pattern is None else f"^(?:{pattern})$"


@lru_cache(maxsize=1)
def format_checker() -> FormatChecker:
    """A checker of the known formats for ``jsonschema`` validators."""
    checker = FormatChecker(formats=())
    for name in KNOWN_FORMATS:
        checker.checks(name)(partial(_value_holds, name))
    return checker


def _value_holds(name: str, value: object) -> bool:
    return not isinstance(value, str) or holds(name, value)
