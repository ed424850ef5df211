"""Pages read back: whether they are well-formed, and the tables in them."""

from __future__ import annotations

import html
import re
from html.parser import HTMLParser

VOID = {"meta", "link", "input", "img", "br"}


class Page(HTMLParser):
    """Every element; raises ``AssertionError`` where tags do not nest."""

    def __init__(self, text: str):
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == [], f"never closed: {self._open}"

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"twice the same in <{tag}>"
        self.found.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self._open and self._open[-1] == tag, f"</{tag}> closes {self._open[-3:]}"
        self._open.pop()

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attrs for name, attrs in self.found if name == tag]


def figure(page: str, slug: str) -> str:
    """The markup of one block."""
    found = re.search(rf'<figure class="card[^"]*" id="{slug}">.*?</figure>', page, re.S)
    assert found, slug
    return found.group()


def slugs(page: str) -> list[str]:
    return re.findall(r'<figure class="card[^"]*" id="([^"]+)">', page)


def table(figure: str) -> list[list[str]]:
    """The rows of its table, the head first; [] without one."""
    return [
        [words(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S)]
        for row in re.findall(r"<tr>(.*?)</tr>", figure, re.S)
    ]


def sql(figure: str) -> list[str]:
    """The statements it shows."""
    found = re.search(r"<summary>SQL</summary>.*?<code>(.*?)</code>", figure, re.S)
    return [one for one in html.unescape(found.group(1)).split(";\n") if one] if found else []


def words(markup: str) -> str:
    return html.unescape(re.sub(r"<[^>]+>", "", markup)).strip()
