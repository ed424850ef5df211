"""The pages in a real Chromium: what is seen, what the policy says, where links lead."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright

from agentspec.dashboard.pages import MENU, request_url
from agentspec.store.record import RequestRecord

pytestmark = pytest.mark.browser

ARGUMENTS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    assert found, "no Chromium: apt-get install chromium"
    expect.set_options(timeout=60_000)  # a machine shared with others
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=found, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture(params=["light", "dark"])
def page(request: pytest.FixtureRequest, browser: Browser, served: str) -> Iterator[Page]:
    """A page whose console, when the test is over, holds no complaint of any kind."""
    context = browser.new_context(base_url=served, color_scheme=request.param)
    context.set_default_timeout(60_000)
    page = context.new_page()
    complaints: list[str] = []
    page.on("console", lambda message: complaints.append(message.text))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    page.on("requestfailed", lambda failed: complaints.append(f"failed: {failed.url}"))
    yield page
    context.close()
    assert not complaints, "\n".join(complaints)


def test_the_rows_of_the_database_are_on_the_page(page: Page, records: list[RequestRecord]):
    page.goto("/dashboard?range=24h")
    rows = page.locator("table.requests tbody tr")
    newest = sorted(records, key=lambda r: (r.ts_ms, r.id), reverse=True)[:20]
    expect(rows).to_have_count(20)
    for index, record in enumerate(newest):
        cells = rows.nth(index).locator("td").all_inner_texts()
        assert cells[1] == record.status
        assert [cells[2], cells[4]] == [record.model, record.session_id]
        assert cells[5:8] == [f"{n:,}" for n in (record.in_tok, record.cached_tok, record.out_tok)]
    assert page.locator(".tile", has_text="Requests").locator(".value").inner_text() == str(
        len(records)
    )


def test_the_sheet_applies_and_charts_have_a_size(page: Page):
    """A policy that blocked the sheet would leave black bars and serif text."""
    page.goto("/dashboard?range=24h")
    card = page.locator(".card").first
    assert card.evaluate("e => getComputedStyle(e).borderRadius") == "12px"
    colors = {
        page.locator(f".chart .{name}").first.evaluate("e => getComputedStyle(e).fill")
        for name in ("c-ok", "c-failed", "c-out", "c-cached", "c-ttft", "c-e2e")
    }
    assert len(colors) == 6 and "rgb(0, 0, 0)" not in colors
    for chart in page.locator(".chart").all():
        box = chart.bounding_box()
        assert box and box["width"] > 300 and box["height"] > 150


def test_light_and_dark_follow_the_system(page: Page):
    page.goto("/dashboard")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    red, green, blue = page.evaluate(
        "getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number)"
    )
    assert (red + green + blue < 150) == dark


def test_every_page_fits_the_window_and_breaks_no_policy(page: Page, records: list[RequestRecord]):
    """Over rows with hostile names; what the console says of it fails the test (``page``)."""
    session = f"/dashboard/sessions/{quote(records[0].session_id)}"
    for path in (*MENU, request_url(records[-1]), session, "/dashboard/explore?by=client"):
        page.goto(path)
        expect(page.locator("h1")).to_have_count(1)
        for width in (360, 1440):
            page.set_viewport_size({"width": width, "height": 800})
            assert page.evaluate("document.documentElement.scrollWidth") <= width, path


def test_axe_finds_nothing(page: Page, records: list[RequestRecord]):
    """Every rule of axe-core on every page; in the dark on those that have all the colours."""
    session = f"/dashboard/sessions/{quote(records[0].session_id)}"
    few = ("/dashboard", "/dashboard/speculation", "/dashboard/cost", request_url(records[0]))
    page.goto("/dashboard")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    found = {}
    for path in few if dark else (*MENU, request_url(records[0]), session):
        page.goto(f"{path}?range=1h")
        for violation in Axe().run(page).response["violations"]:
            found[path, violation["id"]] = [node["html"][:200] for node in violation["nodes"]][:3]
        page.evaluate("delete window.axe")
    assert found == {}


def test_colours_can_be_chosen_and_stay(page: Page):
    page.goto("/dashboard/load")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    color = "getComputedStyle(document.body).backgroundColor"
    before, other = page.evaluate(color), "Light" if dark else "Dark"
    root = page.locator("html")
    page.get_by_role("link", name=other, exact=True).click()
    expect(root).to_have_attribute("data-theme", other.lower())
    expect(page).to_have_url(re.compile(r"/dashboard/load$"))
    expect(page.locator("main")).to_be_visible()
    after = page.evaluate(color)
    assert after != before
    page.goto("/dashboard/cache")
    assert page.evaluate(color) == after
    page.get_by_role("link", name="Auto", exact=True).click()
    expect(root).not_to_have_attribute("data-theme", other.lower())
    expect(page.locator("main")).to_be_visible()
    assert page.evaluate(color) == before


def test_filters_and_the_explorer_by_keyboard_and_click(page: Page, records: list[RequestRecord]):
    page.goto("/dashboard/explore")
    page.locator("select[name=measure]").select_option("out_tok")
    page.locator("select[name=by]").select_option("backend")
    page.locator("select[name=model]").select_option("gpt-9")
    page.get_by_role("button", name="Show").focus()
    page.keyboard.press("Enter")
    expect(page).to_have_url(re.compile(r"model=gpt-9.*measure=out_tok&by=backend"))
    expect(page.locator(".htmx-request")).to_have_count(0)
    page.locator("#groups summary", has_text="Table").click()
    shown = {
        row.locator("th").inner_text(): row.locator("td").first.inner_text()
        for row in page.locator("#groups tbody tr").all()
    }
    mine = [r for r in records if r.model == "gpt-9"]
    truth = {b: sum(r.out_tok for r in mine if r.backend == b) for b in {r.backend for r in mine}}
    assert shown == {backend: f"{tokens:,}" for backend, tokens in truth.items()}
    with page.expect_download() as downloaded:
        page.locator("#groups").get_by_role("link", name="CSV").click()
    lines = Path(downloaded.value.path()).read_text().splitlines()
    assert lines[0] == "backend,out_tok,requests" and len(lines) == 1 + len(truth)
    page.locator("#groups tbody a").first.click()
    expect(page.locator("h1")).to_have_text("Requests")
    page.get_by_role("link", name="Clear filters").click()
    expect(page).to_have_url(re.compile(r"/dashboard/requests\?range=24h$"))


def test_links_lead_where_they_say(page: Page, records: list[RequestRecord]):
    newest = sorted(records, key=lambda r: (r.ts_ms, r.id), reverse=True)
    page.goto("/dashboard?range=24h")
    page.locator("table.requests tbody tr").nth(1).locator("a").first.click()
    expect(page.locator("h1")).to_have_text(newest[1].id)
    page.get_by_role("link", name=newest[1].session_id, exact=True).click()
    same = [r for r in records if r.session_id == newest[1].session_id]
    expect(page.locator("h1")).to_have_text(newest[1].session_id)
    expect(page.locator("tbody tr")).to_have_count(len(same))
    page.get_by_role("link", name="Overview").click()
    page.get_by_role("link", name="1h", exact=True).click()
    expect(page).to_have_url(re.compile(r"/dashboard\?range=1h$"))


def test_the_table_behind_a_chart_opens_by_keyboard(page: Page):
    page.goto("/dashboard?range=24h")
    figure = page.locator("figure").first
    expect(figure.locator("table")).to_be_hidden()
    figure.locator("summary", has_text="Table").focus()
    page.keyboard.press("Enter")
    expect(figure.locator("table")).to_be_visible()


def test_hostile_names_are_shown_and_not_run(page: Page, records: list[RequestRecord]):
    hostile = records[-1]
    page.goto("/dashboard")
    expect(page.locator("table.requests tbody tr").first).to_contain_text(hostile.model)
    page.locator("table.requests tbody tr").first.locator("a").first.click()
    expect(page.locator("h1")).to_have_text(hostile.id)
    expect(page.locator("pre")).to_contain_text(hostile.model.split('"')[0])
    page.locator(".facts a").click()
    expect(page.locator("h1")).to_have_text(hostile.session_id)
    expect(page.locator("tbody tr")).to_have_count(1)


def test_screenshots_differ_by_content(page: Page, tmp_path: Path):
    """The picture is not blank: the two ranges, of unequal data, do not look the same."""
    page.goto("/dashboard?range=24h")
    first = page.locator("figure").first.screenshot()
    page.goto("/dashboard?range=30d")
    assert page.locator("figure").first.screenshot() != first
