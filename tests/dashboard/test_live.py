"""What scripts add to the pages, in a real Chromium: filters that hold at once, pages that refresh
themselves, the explorer's chart; and that everything is there without them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse
from playwright.sync_api import Browser, Page, expect

from agentspec.store import migrate
from agentspec.store.record import RequestRecord
from tests.dashboard.conftest import HOSTILE, application, serving
from tests.dashboard.test_browser import browser, page  # noqa: F401 (fixtures)
from tests.store.ledger import EPOCH_MS, insert

pytestmark = pytest.mark.browser


def row(number: int, **fields) -> RequestRecord:
    return RequestRecord(id=f"r{number}", ts_ms=EPOCH_MS - 60_000 * (number + 1), **fields)


@pytest.fixture
def growing(tmp_path: Path) -> Iterator[tuple[str, str, FastAPI]]:
    """A dashboard whose ledger can get more rows: its URL, the ledger's, the application."""
    ledger = f"sqlite:///{tmp_path / 'agentspec.db'}"
    migrate.upgrade(ledger)
    insert(ledger, [row(n, model="m", out_tok=10) for n in range(3)])
    app = application(ledger)
    with serving(app) as url:
        yield url, ledger, app


def opened(browser: Browser, url: str, **options) -> Page:  # noqa: F811
    context = browser.new_context(base_url=url, **options)
    context.set_default_timeout(60_000)
    return context.new_page()


def requests_told(page: Page):  # noqa: F811
    return page.locator(".tile", has_text="Requests").locator(".value")


def test_a_live_page_keeps_what_is_open_and_where_one_is(browser: Browser, growing):  # noqa: F811
    url, ledger, _ = growing
    tab = opened(browser, url)
    tab.clock.install()
    tab.goto("/dashboard")
    tab.get_by_role("link", name="Live").click()
    expect(tab).to_have_url(re.compile(r"/dashboard\?range=24h&refresh=10$"))
    expect(requests_told(tab)).to_have_text("3")
    summary = tab.locator("#requests summary", has_text="Table")
    summary.focus()
    tab.keyboard.press("Enter")
    tab.evaluate("document.querySelector('#requests summary').mine = 'the same element'")
    insert(ledger, [row(10, model="m")])
    tab.clock.fast_forward(11_000)
    expect(requests_told(tab)).to_have_text("4")
    expect(tab.locator("#requests table")).to_be_visible()
    assert tab.evaluate("document.activeElement.mine") == "the same element"
    insert(ledger, [row(11, model="m")])
    tab.clock.fast_forward(11_000)  # it goes on, on the tab that it brought
    expect(requests_told(tab)).to_have_text("5")
    tab.get_by_role("link", name="Live").click()
    expect(tab.locator("#live")).to_have_count(0)
    tab.context.close()


def test_a_live_page_says_when_it_is_old(browser: Browser, growing):  # noqa: F811
    url, ledger, app = growing
    failing = []

    @app.middleware("http")
    async def fail(request: Request, call_next):
        return JSONResponse({}, failing[0]) if failing else await call_next(request)

    tab = opened(browser, url)
    tab.clock.install()
    tab.goto("/dashboard?refresh=10")
    expect(tab.locator("#stale")).to_be_empty()
    failing.append(503)
    tab.clock.fast_forward(11_000)
    expect(tab.locator("#stale")).to_contain_text("the gateway answered 503")
    expect(requests_told(tab)).to_have_text("3")
    failing.clear()
    insert(ledger, [row(10, model="m")])
    tab.clock.fast_forward(11_000)
    expect(requests_told(tab)).to_have_text("4")
    expect(tab.locator("#stale")).to_be_empty()
    tab.context.close()


def went_back(tab: Page) -> None:
    """Go back and wait for what is loaded then: where htmx is asked for an address it remembers
    nothing of, it loads the page, which ``Page.go_back`` takes for a navigation called off."""
    with tab.expect_event("load"):
        tab.evaluate("history.back()")


def test_a_filter_holds_at_once_and_back_leads_back(page: Page, served: str):  # noqa: F811
    page.goto("/dashboard/speculation?range=24h")
    page.evaluate("window.mine = 'not loaded anew'")
    select = page.locator("select[name=model]")
    select.focus()
    select.select_option("gpt-9")
    expect(page).to_have_url(re.compile(r"/dashboard/speculation\?range=24h&model=gpt-9$"))
    expect(page.get_by_role("link", name="Clear filters")).to_be_visible()
    expect(page.get_by_role("link", name="7d", exact=True)).to_have_attribute(
        "href", re.compile(r"model=gpt-9")
    )
    assert page.evaluate("window.mine") == "not loaded anew"
    assert page.evaluate("document.activeElement.name") == "model"
    # htmx remembers the address, and none of what was shown.
    kept = "Object.entries({...localStorage, ...sessionStorage})"
    assert [value for _, value in page.evaluate(kept)] == [page.url.removeprefix(served)]
    page.get_by_role("link", name="7d", exact=True).click()
    expect(page).to_have_url(re.compile(r"range=7d&model=gpt-9$"))
    page.wait_for_load_state()
    went_back(page)
    expect(page).to_have_url(re.compile(r"range=24h&model=gpt-9$"))
    went_back(page)
    expect(page).to_have_url(re.compile(r"/dashboard/speculation\?range=24h$"))
    expect(select).to_have_value("")


def test_what_cannot_be_asked_for_is_said_in_place(browser: Browser, served: str):  # noqa: F811
    tab = opened(browser, served)
    tab.goto("/dashboard/latency?range=24h")
    tab.locator("input[name=ttft_ms]").fill("soon")
    tab.locator("input[name=ttft_ms]").press("Enter")
    expect(tab.locator("h1")).to_have_text("This cannot be shown")
    tab.go_back()
    expect(tab.locator("h1")).to_have_text("Latency")
    tab.context.close()


def test_the_explorer_draws_what_its_table_says(page: Page, records: list[RequestRecord]):  # noqa: F811
    page.goto("/dashboard/explore?range=24h&by=backend")
    chart = page.locator(".drawn")
    bars = chart.locator(".mark-rect.role-mark path")
    backends = {record.backend for record in records}
    expect(bars).to_have_count(len(backends))
    expect(chart.locator("+ div")).to_be_hidden()
    widths = bars.evaluate_all("bars => bars.map(bar => bar.getBBox().width)")
    page.locator("#groups summary", has_text="Table").click()
    counts = [int(t.replace(",", "")) for t in page.locator("#groups tbody td.n").all_inner_texts()]
    assert [w / widths[0] for w in widths] == pytest.approx(
        [count / counts[0] for count in counts], rel=0.05, abs=0.01
    )
    bars.first.click()
    expect(page.locator("h1")).to_have_text("Requests")
    expect(page).to_have_url(re.compile("/dashboard/requests.*backend="))


def test_names_in_the_explorer_are_text(page: Page):  # noqa: F811
    page.goto("/dashboard/explore?range=24h&by=client&then=status")
    chart = page.locator(".drawn")
    expect(chart.locator("svg")).to_be_visible()
    bars = chart.locator(".mark-rect.role-mark path")
    tips = set()
    for index in range(bars.count()):
        bars.nth(index).hover(force=True)
        expect(page.locator("#vg-tooltip-element.visible")).to_be_visible()
        tips.add(page.locator("#vg-tooltip-element").inner_text())
    assert any(HOSTILE in tip for tip in tips)
    page.mouse.move(0, 0)
    assert Axe().run(page).response["violations"] == []


def test_the_chart_follows_the_form_and_the_colours(page: Page):  # noqa: F811
    page.goto("/dashboard/explore?range=24h&by=model")
    label = page.locator(".drawn .role-axis-label text").first
    expect(label).to_be_visible()
    before = label.evaluate("e => getComputedStyle(e).fill")
    dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    page.emulate_media(color_scheme="light" if dark else "dark")
    expect(page.locator(".drawn .role-axis-label text").first).not_to_have_css("fill", before)
    page.locator("select[name=measure]").select_option("acceptance_rate")
    page.locator("select[name=then]").select_option("backend")
    expect(page).to_have_url(re.compile("measure=acceptance_rate.*then=backend"))
    expect(page.locator(".drawn .mark-text.role-mark text").first).to_be_visible()


def test_everything_is_there_without_scripts(browser: Browser, served: str):  # noqa: F811
    tab = opened(browser, served, java_script_enabled=False)
    tab.goto("/dashboard/explore?range=24h&by=backend&refresh=60")
    expect(tab.locator("svg.chart")).to_be_visible()
    expect(tab.locator(".drawn")).to_be_hidden()
    tab.locator("select[name=model]").select_option("gpt-9")
    tab.get_by_role("button", name="Show").click()
    expect(tab.locator("h1")).to_have_text("Explore")
    expect(tab).to_have_url(re.compile("model=gpt-9.*by=backend"))
    tab.context.close()
