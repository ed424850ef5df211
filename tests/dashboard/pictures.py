"""Every page as it looks: empty, with one row, and with the rows of a real load.

    python -m tests.dashboard.pictures --to build/pictures [--rounds 1,2,4,8] [--n 4]

starts a whole installation (the embedded engine, its model cached before) on a folder of its own,
drives it with the prompts of ``agentspec bench load``, and takes each page at two widths, in light
and dark. Beside the single pictures it makes one sheet a page that holds them all at half size.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from PIL import Image
from playwright.sync_api import Browser, sync_playwright

from agentspec.bench.processes import free_port, started, wait_http
from agentspec.bench.workloads import load
from agentspec.dashboard.pages import MENU
from tests.dashboard.test_browser import ARGUMENTS

WORKLOADS = ("tool", "edit", "code", "chat")
WIDTHS = {"wide": 1280, "narrow": 400}
COLOURS = ("light", "dark")
STATES = ("empty", "one", "load")
HIGHEST = 1400
COLOURS_KEPT = 28
CONFIG = """
[server]
workers = 1
[engine]
control_share = 0.4
control_window_s = 1.0
[backends.engine]
kind = "engine"
[backends.engine.pool]
host_usd_per_h = 0.4
"""
COLUMNS = ("id", "session_id", "status", "out_tok")


@dataclass
class Endpoint:
    """A running gateway and what opens it. key: "" while none is asked for."""

    url: str
    folder: Path
    key: str = ""

    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"} if self.key else {}

    def ask(self, body: Mapping[str, object], headers: Mapping[str, str]) -> None:
        """One request, its answer read to the end. Raises ``HTTPError``."""
        told = {"Content-Type": "application/json", **self.headers(), **headers}
        data = json.dumps({"model": "smollm2-135m-instruct", "stream": True, **body}).encode()
        request = urllib.request.Request(f"{self.url}/v1/chat/completions", data, told)
        with urllib.request.urlopen(request, timeout=600) as answer:
            answer.read()

    def command(self, *words: str) -> str:
        """What an ``agentspec`` command on its data folder prints."""
        line = [sys.executable, "-m", "agentspec", *words, "--data-dir", str(self.folder)]
        return subprocess.run(line, check=True, capture_output=True, text=True).stdout


def drive(endpoint: Endpoint, rounds: list[int], count: int) -> None:
    """``count`` runs of agents a stream, at so many streams at once as each round says: a run is
    three turns of one session."""
    prompts = {name: load(name, 6) for name in WORKLOADS}
    numbers = iter(range(10**6))
    lock = threading.Lock()

    def run() -> None:
        with lock:
            number = next(numbers)
        name = WORKLOADS[number % len(WORKLOADS)]
        client = ("codex/0.99.0", "claude-cli/2.1.0", "opencode/1.2.3")[number % 3]
        headers = {"x-session-id": f"run-{number:03d}", "user-agent": client}
        for turn in range(3):
            body = prompts[name][(number + turn) % 6].body
            endpoint.ask({**body, "max_tokens": 40}, headers)

    for streams in rounds:
        with ThreadPoolExecutor(streams) as pool:
            for done in [pool.submit(run) for _ in range(streams * count)]:
                done.result()


def paths(endpoint: Endpoint, state: str) -> dict[str, str]:
    """Name of the picture -> path: every page, and one request and session where there are any."""
    found = {title.lower().replace(" ", "-"): path for path, title in MENU.items()}
    found = {name: f"{path}?range=1h" for name, path in found.items()}
    if state == "empty":
        return found
    rows = _rows(endpoint)
    longest = max(rows, key=lambda row: (row["status"] == "ok", int(row["out_tok"])))
    found["one-request"] = f"/dashboard/requests/{longest['id']}"
    found["one-session"] = f"/dashboard/sessions/{quote(longest['session_id'])}"
    found["explore"] = "/dashboard/explore?range=1h&measure=out_tok&by=workload&then=client"
    found["cost"] += "&at=gpt-5-mini"
    return found


def _rows(endpoint: Endpoint) -> list[dict[str, str]]:
    with sqlite3.connect(f"file:{endpoint.folder / 'agentspec.db'}?mode=ro", uri=True) as database:
        found = database.execute(f"SELECT {', '.join(COLUMNS)} FROM request").fetchall()
    return [dict(zip(COLUMNS, map(str, row), strict=True)) for row in found]


def take(browser: Browser, endpoint: Endpoint, state: str, to: Path) -> None:
    """Each page at each width in each colour, as ``PAGE.STATE.WIDTH.COLOUR.png``."""
    login = {"username": "me", "password": endpoint.key} if endpoint.key else None
    for width, pixels in WIDTHS.items():
        for colour in COLOURS:
            context = browser.new_context(
                base_url=endpoint.url,
                color_scheme=colour,  # type: ignore[arg-type]
                http_credentials=login,  # type: ignore[arg-type]
                viewport={"width": pixels, "height": 900},
            )
            page = context.new_page()
            for name, path in paths(endpoint, state).items():
                page.goto(path)
                for chart in page.locator(".drawn").all():
                    chart.locator("svg").wait_for()
                file = to / f"{name}.{state}.{width}.{colour}.png"
                page.screenshot(path=file, full_page=True)
            context.close()


def sheets(folder: Path) -> Iterator[Path]:
    """One picture a page: all its views at half size, a row a state, cut where they are long."""
    for name in sorted({file.name.split(".")[0] for file in folder.glob("*.*.*.*.png")}):
        rows = []
        for state in STATES:
            views = [
                _half(file)
                for width in WIDTHS
                for colour in COLOURS
                if (file := folder / f"{name}.{state}.{width}.{colour}.png").exists()
            ]
            if views:
                rows.append(_beside(views))
        sheet = _below(rows).quantize(
            COLOURS_KEPT, Image.Quantize.MAXCOVERAGE, kmeans=2, dither=Image.Dither.NONE
        )
        path = folder / f"sheet.{name}.png"
        sheet.save(path, optimize=True)
        yield path


def _half(file: Path) -> Image.Image:
    picture = Image.open(file).convert("RGB")
    picture = picture.crop((0, 0, picture.width, min(picture.height, HIGHEST)))
    return picture.resize((picture.width // 2, picture.height // 2), Image.Resampling.LANCZOS)


def _beside(views: list[Image.Image]) -> Image.Image:
    width = sum(view.width + 8 for view in views) - 8
    row = Image.new("RGB", (width, max(view.height for view in views)), "gray")
    at = 0
    for view in views:
        row.paste(view, (at, 0))
        at += view.width + 8
    return row


def _below(rows: list[Image.Image]) -> Image.Image:
    height = sum(row.height + 8 for row in rows) - 8
    sheet = Image.new("RGB", (max(row.width for row in rows), height), "gray")
    at = 0
    for row in rows:
        sheet.paste(row, (0, at))
        at += row.height + 8
    return sheet


def _settled(endpoint: Endpoint, count: int) -> None:
    """Wait until the writer has drained so many rows."""
    while len(_rows(endpoint)) < count:
        threading.Event().wait(0.2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--to", type=Path, required=True)
    parser.add_argument("--rounds", default="1,2,4,8")
    parser.add_argument("--n", type=int, default=2)
    args = parser.parse_args()
    rounds = [int(word) for word in args.rounds.split(",")]
    args.to.mkdir(parents=True, exist_ok=True)
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    port = free_port()
    with tempfile.TemporaryDirectory(prefix="pictures-") as name, sync_playwright() as playwright:
        folder = Path(name)
        (folder / "settings.toml").write_text(CONFIG)
        endpoint = Endpoint(f"http://127.0.0.1:{port}", folder / "data")
        command = [sys.executable, "-m", "agentspec", "serve", "--port", str(port)]
        command += ["--data-dir", str(endpoint.folder), "--config", f"{folder}/settings.toml"]
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        with (
            started(command, folder) as process,
            wait_http(f"{endpoint.url}/ready", process, 600),
        ):
            endpoint.command("prices", "import")
            take(browser, endpoint, "empty", args.to)
            endpoint.ask(load("tool", 1)[0].body | {"max_tokens": 40}, {"x-session-id": "first"})
            _settled(endpoint, 1)
            take(browser, endpoint, "one", args.to)
            drive(endpoint, rounds, args.n)
            _settled(endpoint, 1 + 3 * args.n * sum(rounds))
            endpoint.command("keys", "project", "create", "team")
            made = endpoint.command("keys", "create", "me", "--project", "team", "--operator")
            endpoint.key = next(word for word in made.split() if word.startswith("as-"))
            take(browser, endpoint, "load", args.to)
        browser.close()
    for path in sheets(args.to):
        sys.stdout.write(f"{path} {path.stat().st_size // 1024} KiB\n")


if __name__ == "__main__":
    main()
