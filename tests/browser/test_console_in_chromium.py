"""The console in a real browser: keys, live views, typed confirmations, narrow windows, accessibility, screenshots.

Skipped where no Chromium is installed (Debian: `apt-get install chromium`). The screenshots of docs/CONSOLE.md are made
if ODRADEK_SCREENSHOTS names a folder.
"""

import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from odradek.client.admin import Admin
from odradek.client.blocking import shared
from odradek.records.topic_partition import TopicPartition
from odradek.testing.blocking import BlockingBroker
from tests.integration.token_issuer import CLIENT, SECRET, Issuer, bearer_settings

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium is installed"),
    pytest.mark.xdist_group("browser"),
]

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

sync_api: Any = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed")

CONSOLE = [sys.executable, "-m", "odradek.cli.main", "console", "--listen", "127.0.0.1:0"]
AT = "/c/cluster"
SHIFT_LIMIT = 0.05
"""Cumulative layout shift that a page may have; 0.1 is what browsers' makers call good."""
OBSERVE_SHIFTS = """
window.shifts = [];
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) {
    if (!entry.hadRecentInput)
      window.shifts.push([entry.value, entry.sources.map((each) => each.node?.outerHTML?.slice(0, 120))]);
  }
}).observe({ type: "layout-shift", buffered: true });
"""
TWO_FRAMES = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
"""Until the browser has laid out and painted what it has."""
PAGES = {
    "overview": AT,
    "broker": AT + "/brokers/1?q=log.",
    "topics": AT + "/topics",
    "topic": AT + "/topics/orders",
    "settings": AT + "/topics/orders/settings?all=yes",
    "topic-groups": AT + "/topics/orders/groups",
    "messages": AT + "/topics/orders/messages",
    "message": AT + "/topics/orders/messages?from=offset&partition=0&offset=1&limit=1",
    "produce": AT + "/topics/orders/produce",
    "groups": AT + "/groups",
    "group": AT + "/group?name=billing",
    "preview": AT + "/group/preview?name=billing&way=to-earliest",
    "transactions": AT + "/transactions",
    "reassignment": AT + "/reassignment",
    "plan": AT + "/reassignment/plan",
    "access": AT + "/access",
    "dead-letters": AT + "/dead-letters",
    "dead-letters-topic": AT + "/dead-letters/orders",
    "queries": AT + "/queries",
    "metrics": AT + "/metrics",
    "topic-metrics": AT + "/topics/orders/metrics",
    "clients": AT + "/clients",
    "error": AT + "/topics/missing",
}


@pytest.fixture(scope="module")
def broker() -> Iterator[BlockingBroker]:
    """A broker with topics, records and a group."""
    with BlockingBroker() as started:
        for name, partitions in (("orders", 1), ("payments", 6), ("invoices", 3)):
            started.topic(name, partitions=partitions)
        orders = [{"order": i, "customer": f"customer-{i % 7}", "total": i * 9.5} for i in range(40)]
        started.produce("orders", *[json.dumps(each) for each in orders], key="customer")

        async def commit() -> None:
            async with Admin(bootstrap_servers=started.bootstrap_servers) as admin:
                await admin.groups.alter_offsets("billing", {TopicPartition("orders", 0): 25})

        # Playwright runs a loop in this thread.
        shared().run(commit())
        yield started


@pytest.fixture(scope="module")
def url(broker: BlockingBroker) -> Iterator[str]:
    """The address of a console for the broker."""
    with serving([*CONSOLE, "--allow-changes", "-b", broker.bootstrap_servers]) as found:
        yield found


@contextmanager
def serving(command: list[str]) -> Iterator[str]:
    """The address of a console in a process of its own."""
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().split("url=")[1].split()[0].rstrip("/")
        finally:
            process.terminate()
            process.wait(30)


@pytest.fixture(scope="module")
def chromium() -> Iterator["Browser"]:
    """The browser."""
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def opened(chromium: "Browser", url: str) -> Iterator[Callable[..., "Page"]]:
    """Opens pages; what the browser reports as an error (blocked content, exceptions) fails the test."""
    contexts, errors = [], []

    def open_page(path: str, width: int = 1280, scheme: Any = "light") -> "Page":
        context = chromium.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
        context.set_default_timeout(30_000)
        contexts.append(context)
        context.add_init_script(OBSERVE_SHIFTS)
        page = context.new_page()
        page.on("pageerror", lambda error: errors.append(str(error)))
        page.on("console", lambda line: errors.append(line.text) if "Content Security" in line.text else None)
        response = page.goto(url + path)
        assert response is not None
        assert response.status == (404 if path == PAGES["error"] else 200)
        return page

    yield open_page
    for context in contexts:
        context.close()
    assert errors == []


def serious_violations(page: "Page") -> list[tuple[str, list[str]]]:
    """What axe finds on a page: rules, and the first elements that break them."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"]][:3])
        for each in axe.run(page).response["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def layout_shifts(page: "Page") -> list[tuple[float, list[str]]]:
    """Shifts of the page so far, with the elements that moved, but none that follow input."""
    page.evaluate(TWO_FRAMES)
    return page.evaluate("window.shifts")  # type: ignore[no-any-return]


def total(shifts: list[tuple[float, list[str]]]) -> float:
    """The cumulative shift."""
    return sum(value for value, _ in shifts)


# Each page in one of the themes: they share all rules but the values of colours.
@pytest.mark.parametrize(("name", "scheme"), list(zip(PAGES, itertools.cycle(["light", "dark"]), strict=False)))
def test_page_is_accessible_and_fits_a_narrow_window(opened: Callable[..., "Page"], name: str, scheme: str) -> None:
    page = opened(PAGES[name], scheme=scheme)
    shifts = layout_shifts(page)
    assert total(shifts) <= SHIFT_LIMIT, shifts
    assert serious_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


def test_layout_shift_is_measured(opened: Callable[..., "Page"]) -> None:
    page = opened(AT)
    page.evaluate("document.querySelector('main').style.marginTop = '300px'")
    assert total(layout_shifts(page)) > SHIFT_LIMIT


@pytest.mark.parametrize("width", [360, 1280])
def test_streamed_hits_shift_no_layout(opened: Callable[..., "Page"], width: int) -> None:
    page = opened(AT + "/topics/orders/messages?filter=text&q=customer-3", width=width)
    sync_api.expect(page.locator("#status")).to_contain_text("All records were read", timeout=30_000)
    shifts = layout_shifts(page)
    assert total(shifts) <= SHIFT_LIMIT, shifts


def test_live_rows_replace_each_other_without_a_shift(opened: Callable[..., "Page"]) -> None:
    page = opened(AT + "/topics")
    page.locator("[data-search]").press_sequentially("pay")
    sync_api.expect(page.locator(".rows tbody tr")).to_have_count(1, timeout=30_000)
    shifts = layout_shifts(page)
    assert total(shifts) <= SHIFT_LIMIT, shifts


@pytest.mark.parametrize("name", ["topics", "topic", "messages", "preview"])
def test_all_controls_are_reached_by_the_tab_key(opened: Callable[..., "Page"], name: str) -> None:
    """Each control of a page takes the focus in turn, and shows that it has it."""
    page = opened(PAGES[name])
    wanted = page.evaluate(
        """() => {
          const all = [...document.querySelectorAll("a[href], button, input, select, textarea, summary")];
          const used = all.filter((each) => !each.disabled && each.type !== "hidden" && each.checkVisibility());
          used.forEach((each, at) => { each.dataset.control = at; });
          return used.length;
        }"""
    )
    reached, unmarked = set(), []
    for _ in range(wanted + 5):
        page.keyboard.press("Tab")
        at, outline, html = page.evaluate(
            """() => {
              const it = document.activeElement;
              return [it.dataset.control, getComputedStyle(it).outlineStyle, it.outerHTML.slice(0, 120)];
            }"""
        )
        if at is None or at in reached:
            continue
        reached.add(at)
        if outline == "none":
            unmarked.append(html)
    assert len(reached) == wanted
    assert unmarked == []


def test_keys_lead_through_the_console(opened: Callable[..., "Page"]) -> None:
    page = opened(AT)
    page.keyboard.press("g")
    page.keyboard.press("t")
    page.wait_for_url("**/topics")
    page.keyboard.press("j")
    page.keyboard.press("j")
    page.keyboard.press("Enter")
    page.wait_for_url("**/topics/orders")
    page.keyboard.press("?")
    assert page.locator("dialog#keys").is_visible()


def test_typing_a_search_filters_topics(opened: Callable[..., "Page"]) -> None:
    page = opened(AT + "/topics")
    page.keyboard.press("/")
    page.keyboard.type("pay")
    sync_api.expect(page.locator(".rows tbody tr")).to_have_count(1, timeout=30_000)
    assert page.locator(".rows tbody th").inner_text() == "payments"


def test_search_streams_records(opened: Callable[..., "Page"]) -> None:
    page = opened(AT + "/topics/orders/messages?filter=cel&q=value.total+%3E+350")
    sync_api.expect(page.locator("#status")).to_contain_text("All records were read", timeout=30_000)
    assert page.locator(".record").count() == 3


def test_live_view_shows_new_records(opened: Callable[..., "Page"], broker: BlockingBroker) -> None:
    page = opened(AT + "/topics/invoices/messages?from=live")
    sync_api.expect(page.locator("#status")).to_contain_text("records and", timeout=30_000)
    broker.produce("invoices", "<b>fresh</b>")
    page.wait_for_selector(".record")
    assert "<b>fresh</b>" in page.locator(".record summary").inner_text()
    page.click("#stop")
    assert "Stopped" in page.locator("#status").inner_text()


def test_topic_is_deleted_only_after_its_name_was_typed(opened: Callable[..., "Page"], broker: BlockingBroker) -> None:
    topic = broker.topic()
    page = opened(f"{AT}/topics/{topic}")
    button = page.get_by_role("button", name="Delete the topic")
    assert button.is_disabled()
    page.fill("#delete-confirm", topic)
    button.click()
    page.wait_for_url("**/topics")
    assert topic not in page.content()


def test_rejected_moves_are_listed_on_a_page_that_fits(opened: Callable[..., "Page"], broker: BlockingBroker) -> None:
    """A plan whose brokers have gone: every move is named, not the first only, and the way back is a link."""
    topic = broker.topic(partitions=3)
    page = opened(f"{AT}/reassignment")
    page.evaluate(
        """([action, csrf, moves]) => {
          const form = document.createElement("form");
          form.method = "post";
          form.action = action;
          for (const [name, value] of Object.entries({ csrf, moves, confirm: "cluster" })) {
            const field = document.createElement("input");
            field.type = "hidden";
            field.name = name;
            field.value = value;
            form.append(field);
          }
          document.body.append(form);
          form.submit();
        }""",
        [
            f"{AT}/reassignment/execute",
            page.locator("input[name=csrf]").first.get_attribute("value"),
            " ".join(f"{topic}:{partition}=1>{7 + partition}" for partition in range(3)),
        ],
    )
    page.wait_for_url("**/execute")
    rows = page.locator("table tbody tr").all_inner_texts()
    assert [row.split()[0] for row in rows] == [f"{topic}-{partition}" for partition in range(3)]
    assert ["broker 7" in rows[0], "broker 8" in rows[1], "broker 9" in rows[2]] == [True] * 3
    assert "Nothing was changed" in page.get_by_role("alert").inner_text()
    assert serious_violations(page) == []
    page.set_viewport_size({"width": 360, "height": 800})
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    page.get_by_role("link", name="Reassignment").first.click()
    page.wait_for_url(f"**{AT}/reassignment")


def test_login_at_an_issuer_of_another_site(chromium: "Browser", tmp_path: Path) -> None:
    """The browser holds strict cookies back on the way from the issuer, and the session must work all the same."""
    issuer = Issuer()
    issuer.name = issuer.url
    secret, config = tmp_path / "secret", tmp_path / "client.properties"
    secret.write_text(SECRET)
    config.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n")
    options = ["--login", "--oidc-issuer", issuer.url, "--oidc-client-id", CLIENT]
    options += ["--oidc-client-secret-file", str(secret), "--command-config", str(config)]
    try:
        with (
            BlockingBroker(bearer_settings(issuer)) as broker,
            serving([*CONSOLE, *options, "-b", broker.bootstrap_servers]) as url,
        ):
            page = chromium.new_page()
            page.goto(url.replace("127.0.0.1", "localhost") + AT)
            assert serious_violations(page) == []
            page.click("text=Log in at")
            page.wait_for_url(f"**{AT}", timeout=30_000)
            assert page.locator("form[action='/logout']").inner_text() == "Log out alice"
            page.context.close()
    finally:
        issuer.close()


def test_theme_is_switched_without_scripts(chromium: "Browser", url: str) -> None:
    context = chromium.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(url + AT)
    page.click("form.theme button")
    assert page.locator("html").get_attribute("data-theme") == "dark"
    context.close()


def test_screenshots_are_made(opened: Callable[..., "Page"], tmp_path: Path) -> None:
    folder = Path(os.environ.get("ODRADEK_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    for name, scheme, width in (("topics", "light", 1040), ("messages", "dark", 1040), ("group", "light", 1040)):
        page = opened(PAGES[name], width=width, scheme=scheme)
        page.set_viewport_size({"width": width, "height": 585})
        file = folder / f"console-{name}.png"
        page.screenshot(path=file)
        assert file.read_bytes().startswith(b"\x89PNG")
