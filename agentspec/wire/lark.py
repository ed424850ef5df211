"""Lark grammars of free-form tools as regular expressions, where they are regular.

Read: rules and terminals, strings (with ``i``), ``/regex/`` (with ``i``, ``s``, ``m`` of no
effect), ranges, groups, ``[...]``, ``?``, ``*``, ``+``, ``~ n`` and ``~ n..m``, aliases,
priorities, and the imports of ``common`` below. A rule that needs itself is not regular and is
refused, as are ``%ignore`` and templates. Grammar of the notation: lark-parser's own reference.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

MAX_CHARS = 64 * 1024
MAX_PATTERN_CHARS = 256 * 1024
COMMON = {
    "LF": r"\n",
    "CR": r"\r",
    "NEWLINE": r"(?:\r?\n)+",
    "WS": r"[ \t\f\r\n]+",
    "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]",
    "HEXDIGIT": "[0-9a-fA-F]",
    "INT": "[0-9]+",
    "SIGNED_INT": r"[+\-]?[0-9]+",
    "LETTER": "[a-zA-Z]",
    "WORD": "[a-zA-Z]+",
    "CNAME": "[a-zA-Z_][a-zA-Z0-9_]*",
}
_TOKEN = re.compile(
    r"""(?P<space>[ \t]+|//[^\n]*)|(?P<line>\r?\n)|(?P<string>"(?:\\.|[^"\\\n])*"i?)"""
    r"""|(?P<regex>/(?!/)(?:\\.|[^/\\\n])+/[imslux]*)|(?P<arrow>->[ \t]*\w+)|(?P<dots>\.\.)"""
    r"""|(?P<directive>%\w+[^\n]*)|(?P<name>[!?]*_?[A-Za-z]\w*)|(?P<priority>\.-?\d+)"""
    r"""|(?P<number>\d+)|(?P<mark>[:|()\[\]?*+~])"""
)
_IMPORT = re.compile(r"%import\s+common\.(\w+)(?:\s*->\s*(\w+))?\s*$")
_SPECIAL = re.compile(r"([\\^$.|?*+()\[\]{}/-])")


class GrammarError(ValueError):
    """The grammar cannot be read, or is not regular; the message says where."""


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


@dataclass(slots=True)
class _Grammar:
    """rules: the tokens of each rule's right side, by its name."""

    rules: dict[str, list[_Token]] = field(default_factory=dict)
    patterns: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)

    def pattern(self, name: str) -> str:
        if name in self.patterns:
            return self.patterns[name]
        if name in self.open:
            raise GrammarError(f"rule '{name}' refers to itself")
        if name not in self.rules:
            raise GrammarError(f"rule '{name}' is not defined")
        self.open.append(name)
        if len(self.open) > 100:
            raise GrammarError("its rules are nested too deeply")
        made = _Expansion(self, self.rules[name]).whole()
        self.open.pop()
        if len(made) > MAX_PATTERN_CHARS:
            raise GrammarError(f"rule '{name}' becomes too large")
        self.patterns[name] = made
        return made


def to_pattern(definition: str) -> str:
    """A regular expression (ECMA-262, not anchored) for the texts that ``start`` derives.

    Raises ``GrammarError``.
    """
    if len(definition) > MAX_CHARS:
        raise GrammarError("it is too large")
    return _read(definition).pattern("start")


def _read(definition: str) -> _Grammar:
    grammar = _Grammar()
    body: list[_Token] | None = None
    tokens = _tokens(definition)
    for index, token in enumerate(tokens):
        if token.kind == "directive":
            _import(grammar, token.text)
            body = None
        elif token.kind == "name" and _defines(tokens, index):
            name = token.text.lstrip("!?")
            if name in grammar.rules:
                raise GrammarError(f"rule '{name}' is defined twice")
            body = grammar.rules[name] = []
        elif token.kind == "line":
            continue
        elif body is None:
            raise GrammarError(f"'{token.text}' stands outside of any rule")
        elif token.kind != "arrow":
            body.append(token)
    return grammar


def _defines(tokens: list[_Token], index: int) -> bool:
    """Whether the name at ``index`` begins a rule: at a line's start, before a colon."""
    if index and tokens[index - 1].kind not in ("line", "directive"):
        return False
    rest = [t for t in tokens[index + 1 : index + 3] if t.kind != "priority"]
    return bool(rest) and rest[0].text == ":"


def _tokens(definition: str) -> list[_Token]:
    found: list[_Token] = []
    at = 0
    while at < len(definition):
        match = _TOKEN.match(definition, at)
        if match is None:
            raise GrammarError(f"'{definition[at : at + 20]}' cannot be read")
        at = match.end()
        if match.lastgroup not in ("space", None):
            found.append(_Token(match.lastgroup or "", match.group()))
    return found


def _import(grammar: _Grammar, text: str) -> None:
    match = _IMPORT.match(text.split("//")[0].strip())
    if match is None or match.group(1) not in COMMON:
        raise GrammarError(f"'{text.strip()[:60]}' is not supported")
    grammar.patterns[match.group(2) or match.group(1)] = COMMON[match.group(1)]


class _Expansion:
    """One right side as a pattern, by recursive descent."""

    def __init__(self, grammar: _Grammar, tokens: list[_Token]):
        self._grammar = grammar
        self._tokens = tokens
        self._at = 0
        self._depth = 0
        # The name's own ':' (and a priority before it) come first.
        while self._peek() != ":":
            self._at += 1
        self._at += 1

    def whole(self) -> str:
        made = self._choice()
        if self._at < len(self._tokens):
            raise GrammarError(f"'{self._peek()}' is out of place")
        return made

    def _peek(self) -> str:
        return self._tokens[self._at].text if self._at < len(self._tokens) else ""

    def _choice(self) -> str:
        options = [self._sequence()]
        while self._peek() == "|":
            self._at += 1
            options.append(self._sequence())
        return options[0] if len(options) == 1 else f"(?:{'|'.join(options)})"

    def _sequence(self) -> str:
        made = ""
        while self._at < len(self._tokens) and self._peek() not in ("|", ")", "]"):
            made += self._repeated(self._atom())
        return made

    def _repeated(self, atom: str) -> str:
        sign = self._peek()
        if sign in ("?", "*", "+"):
            self._at += 1
            return f"(?:{atom}){sign}"
        if sign != "~":
            return atom
        self._at += 1
        low = high = self._number()
        if self._peek() == "..":
            self._at += 1
            high = self._number()
        return f"(?:{atom}){{{low},{high}}}"

    def _number(self) -> int:
        text = self._peek()
        self._at += 1
        if not text.isdecimal() or int(text) > 1000:
            raise GrammarError(f"'{text}' is no count of at most 1000")
        return int(text)

    def _atom(self) -> str:
        token = self._tokens[self._at]
        self._at += 1
        if token.text in ("(", "["):
            return self._group(token.text)
        if token.kind == "string":
            return self._string(token.text)
        if token.kind == "regex":
            return _regex(token.text)
        if token.kind == "name":
            return f"(?:{self._grammar.pattern(token.text.lstrip('!?'))})"
        raise GrammarError(f"'{token.text}' is out of place")

    def _group(self, opened: str) -> str:
        self._depth += 1
        if self._depth > 100:
            raise GrammarError("its groups are nested too deeply")
        inner = self._choice()
        if self._peek() != (")" if opened == "(" else "]"):
            raise GrammarError(f"'{opened}' is not closed")
        self._at += 1
        self._depth -= 1
        return f"(?:{inner})" if opened == "(" else f"(?:{inner})?"

    def _string(self, text: str) -> str:
        first, any_case = _unquoted(text)
        if self._peek() != "..":
            return _literal(first, any_case=any_case)
        self._at += 1
        last, _ = _unquoted(self._peek())
        self._at += 1
        if len(first) != 1 or len(last) != 1 or first > last:
            raise GrammarError(f"'{text}..' is no range of characters")
        return f"[{_literal(first)}-{_literal(last)}]"


def _unquoted(text: str) -> tuple[str, bool]:
    any_case = text.endswith("i")
    body = text.removesuffix("i")
    if len(body) < 2 or body[0] != '"':
        raise GrammarError(f"'{text}' is no string")
    escapes = {"n": "\n", "t": "\t", "r": "\r", "f": "\f"}

    def plain(found: re.Match[str]) -> str:
        code = found.group(1) or found.group(2)
        return chr(int(code, 16)) if code else escapes.get(found.group(3), found.group(3))

    return re.sub(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|(.))", plain, body[1:-1]), any_case


def _literal(text: str, *, any_case: bool = False) -> str:
    made = ""
    for char in text:
        if any_case and char.isascii() and char.isalpha():
            made += f"[{char.lower()}{char.upper()}]"
        elif char in "\n\r\t\f":
            made += {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\f": r"\f"}[char]
        else:
            made += _SPECIAL.sub(r"\\\1", char)
    return made


def _regex(text: str) -> str:
    body, _, flags = text[1:].rpartition("/")
    body = body.replace(r"\/", "/")
    if "x" in flags:
        raise GrammarError(f"the flag 'x' of {text[:40]} is not supported")
    if "i" in flags or "s" in flags:
        kept = "".join(flag for flag in "is" if flag in flags)
        return f"(?{kept}:{body})"
    return f"(?:{body})"
