"""Lark grammars as patterns: what the pattern takes is what the grammar derives."""

from __future__ import annotations

import pytest
import re2

from agentspec.wire.lark import GrammarError, to_pattern

PATCH = r"""
start: begin hunk+ end
begin: "*** Begin Patch" LF
end: "*** End Patch" LF?

hunk: add | remove | update   // three kinds
add: "*** Add File: " name LF line+
remove: "*** Delete File: " name LF
update: "*** Update File: " name LF (("+" | "-" | " ") /(.*)/ LF)+ -> changed
name: /(.+)/
?line: "+" /(.*)/ LF -> added

%import common.LF
"""


def takes(definition: str, text: str) -> bool:
    return re2.fullmatch(to_pattern(definition), text) is not None


@pytest.mark.parametrize(
    ("text", "taken"),
    [
        ("*** Begin Patch\n*** Add File: a/b.py\n+x = 1\n+\n*** End Patch\n", True),
        ("*** Begin Patch\n*** Delete File: a\n*** Delete File: b\n*** End Patch", True),
        ("*** Begin Patch\n*** Update File: a\n-x\n+y\n z\n*** End Patch\n", True),
        ("*** Begin Patch\n*** End Patch\n", False),
        ("*** Begin Patch\n*** Add File: \n+x\n*** End Patch\n", False),
        ("*** Begin Patch\n*** Add File: a\nx\n*** End Patch\n", False),
        ("*** Add File: a\n+x\n", False),
    ],
)
def test_a_patch_grammar(text, taken):
    assert takes(PATCH, text) is taken


@pytest.mark.parametrize(
    ("definition", "good", "bad"),
    [
        ('start: "a" "b"?', ["a", "ab"], ["b", ""]),
        ('start: A ~ 2..3\nA: "x"', ["xx", "xxx"], ["x", "xxxx"]),
        ('start: A ~ 2\nA: "x" | "y"', ["xy"], ["x", "xyx"]),
        ('start: ["a"] ("b" | "c")+', ["b", "acb"], ["a"]),
        ('start: "a".."c" "0".."9"', ["b7"], ["d7", "a"]),
        ('start: "yes"i', ["YES", "yEs"], ["y"]),
        ("start: /a.b/s", ["a\nb"], ["ab"]),
        ("start: /a.b/", ["axb"], ["a\nb"]),
        ("start: /A+/i", ["aAa"], ["b"]),
        (r"start: /a\/b/", ["a/b"], ["ab"]),
        (r'start: "\"" "\n" "\x41" "\\" "+.*"', ['"\nA\\+.*'], ['"\nA\\xx']),
        ("start: WORD WS_INLINE INT\n%import common.WORD\n%import common.INT\n"
         "%import common.WS_INLINE", ["ab 12"], ["ab12"]),
        ('start.2: x\n!x: y\n_z: "q"\ny: _z | "r"', ["q", "r"], ["z"]),
        ('start: "a"\n  | "b"\n  | "c"', ["a", "b", "c"], ["d"]),
        ('start: N\nN: L L\n%import common.LETTER -> L', ["ab"], ["a1"]),
    ],
)  # fmt: skip
def test_the_notation(definition, good, bad):
    assert all(takes(definition, text) for text in good)
    assert not any(takes(definition, text) for text in bad)


@pytest.mark.parametrize(
    ("definition", "words"),
    [
        ('start: "(" start ")"', "refers to itself"),
        ("start: a\na: b\nb: a", "refers to itself"),
        ("start: nothing", "not defined"),
        ('rule: "a"', "'start' is not defined"),
        ('start: "a"\nstart: "b"', "twice"),
        ('start: "a"\n%ignore " "', "not supported"),
        ('start: "a"\n%import python.NAME', "not supported"),
        ('start: ("a"', "not closed"),
        ('start: "a")', "out of place"),
        ("start: @", "cannot be read"),
        ("start: A ~ 5000\nA: /a/", "at most 1000"),
        ("start: /a/x", "flag 'x'"),
        ("start: " + "(" * 200 + '"a"' + ")" * 200, "nested too deeply"),
        ("start: a0\n" + "\n".join(f"a{i}: a{i + 1} a{i + 1}" for i in range(40)) + '\na40: "x"',
         "too large"),
        ("start: a0\n" + "\n".join(f"a{i}: a{i + 1}" for i in range(200)) + '\na200: "x"',
         "nested too deeply"),
        ("x" * 70000, "too large"),
    ],
)  # fmt: skip
def test_what_is_not_regular_or_not_read_is_refused(definition, words):
    with pytest.raises(GrammarError, match=words.replace("'", ".")):
        to_pattern(definition)
