"""Looks at the dashboard in a real browser: a node of its own, and the page as its users have it. See tools/check-dashboard.

Each part is a function whose name is the claim. Nothing here waits for a time: it waits for what is to be seen.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

import axe_playwright_python
from playwright.sync_api import Browser, Page, expect, sync_playwright

ROOT = Path(__file__).resolve().parents[3]
PROGRAM = str(ROOT / "target/release/lighter")
SENSOR = str(ROOT / "target/release/sensor")
AXE = (Path(axe_playwright_python.__file__).parent / "axe.min.js").read_text()

# Nothing takes longer unless it hangs: the machine may be busy.
PATIENCE_SECONDS = 60
VIEWS = ["overview", "functions", "queues", "events", "units", "logs", "boards", "fleet", "offloading", "node", "api"]
FLEET_PICTURE = ROOT / "build/dashboard-fleet.png"
HOSTILE = "<img src=x onerror=window.hurt=1>"


class Node:
    """A node with the CO2 workflow, and readings of which some are broken."""

    #: Options beside the addresses.
    more: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.options = ["--http", "127.0.0.1:0", "--api", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"]
        self.start()
        self.lighter("secret", "set", "SLACK_URL", input="http://127.0.0.1:9")
        self.lighter("deploy", str(ROOT / "examples/co2"))
        self.lighter("deploy", str(ROOT / "examples/hello"))

    def start(self) -> None:
        command = [PROGRAM, "up", "--data-folder", str(self.folder), "--log", "warn", *self.options, *self.more]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if "lighter ready" in line:
                break
        else:
            raise AssertionError("the node did not start: " + "".join(said))
        place = json.loads((self.folder / "node.json").read_text())
        self.api, self.mqtt = place["api"], place["mqtt"]
        # The same address after a restart.
        self.options = ["--http", place["gate"].removeprefix("http://"), "--api", self.api.removeprefix("http://"),
                        "--mqtt", self.mqtt]

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def lighter(self, *words: str, input: str | None = None) -> str:
        environment = {**os.environ, "LIGHTER_DATA": str(self.folder)}
        for name in ("LIGHTER_NODE", "LIGHTER_TOKEN"):
            environment.pop(name, None)
        ended = subprocess.run([PROGRAM, *words], env=environment, input=input, capture_output=True, text=True, check=False)
        assert ended.returncode == 0, f"lighter {' '.join(words)}: {ended.stderr}"
        return ended.stdout

    def publish(self, count: int, faults: float) -> None:
        command = [SENSOR, "publish", "--broker", self.mqtt, "--rate", "500", "--count", str(count), "--faults", str(faults)]
        subprocess.run(command, check=True, capture_output=True)

    def link(self, scope: str = "deploy") -> str:
        return json.loads(self.lighter("dashboard", "--json", "--scope", scope))["url"]

    def ask(self, path: str, token: str | None = None, body: object = None) -> tuple[int, object]:
        token = token or (self.folder / "token").read_text().strip()
        headers = {"authorization": f"Bearer {token}", "content-type": "application/json"}
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.api + path, data=data, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as reply:
                return reply.status, json.loads(reply.read() or b"null")
        except urllib.error.HTTPError as refused:
            return refused.code, json.load(refused)

    def queue(self, name: str) -> dict:
        return self.ask(f"/v1/queues/{name}")[1]  # type: ignore[return-value]


class Member(Node):
    """A node for a fleet, without functions of its own."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.options = ["--http", "127.0.0.1:0", "--api", "127.0.0.1:0", "--mqtt", "127.0.0.1:0"]
        # An address that nobody connects from, so that its ports are free.
        self.more = ("--fleet-listen", "127.0.78.1:0", "--node-name", name)
        self.start()


def wait_for(what: str, ask):
    """What `ask` answers, once that is something."""
    until = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < until:
        if answer := ask():
            return answer
        time.sleep(0.05)
    raise AssertionError(f"{what} did not come")


class Visitor:
    """A window of the browser. What goes wrong in it is noted, and so is every request to another host."""

    def __init__(self, browser: Browser, node: Node, scope: str = "deploy", **options) -> None:
        self.node, self.wrong, self.others = node, [], []
        options = {"viewport": {"width": 1360, "height": 860}, "reduced_motion": "reduce", **options}
        self.context = browser.new_context(**options)
        self.page: Page = self.context.new_page()
        self.page.set_default_timeout(PATIENCE_SECONDS * 1000)
        self.page.on("pageerror", lambda error: self.wrong.append(str(error)))
        self.page.on("console", lambda said: self.wrong.append(said.text) if said.type == "error" else None)
        self.page.on("request", lambda request: None if request.url.startswith(node.api) else self.others.append(request.url))
        self.link = node.link(scope)
        self.page.goto(self.link)
        expect(self.page.locator(".link")).to_have_text("live")

    def go(self, address: str) -> None:
        self.page.evaluate("address => { location.hash = address }", f"#/{address}")

    def end(self, unreachable: bool = False) -> None:
        hurt = self.page.evaluate("window.hurt")
        self.context.close()
        # A browser notes by itself that a server did not answer, or refused.
        wrong = [one for one in self.wrong if "Failed to load resource" not in one]
        assert not hurt and not wrong and not self.others, (hurt, wrong, self.others)


def the_token_leaves_the_address_at_once_and_no_other_host_is_asked(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    page = visitor.page
    assert "token" not in page.url and "lighter_" not in page.url, page.url
    assert "lighter_" not in page.evaluate("document.documentElement.outerHTML + document.cookie")
    # A reload keeps it, another tab does not have it.
    page.reload()
    expect(page.locator(".link")).to_have_text("live")
    other = visitor.context.new_page()
    other.goto(node.api)
    expect(other.get_by_label("Token")).to_be_visible()
    visitor.end()


def what_happens_is_seen_without_a_reload(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    visitor.go("queues")
    row = visitor.page.get_by_role("row").filter(has=visitor.page.get_by_role("link", name="threshold", exact=True))
    dead = row.locator("td").nth(3)
    before = int(dead.inner_text())
    node.publish(12, 1.0)
    wait_for("the dead letters of broken readings", lambda: int(dead.inner_text()) > before)
    visitor.go("functions/threshold")
    expect(visitor.page.locator(".errors b").first).to_have_text("L6003")
    visitor.end()


def a_dead_letter_is_read_edited_replayed_and_acked(browser: Browser, node: Node) -> None:
    # A reading that is good: it becomes the data of one that is not.
    node.publish(5, 1.0)
    wait_for("dead letters", lambda: node.queue("threshold")["dead"] > 0)
    counts = node.queue("threshold")
    dead = node.ask("/v1/queues/threshold/events?part=dead&limit=1000")[1]["events"]
    visitor = Visitor(browser, node)
    page = visitor.page
    visitor.go("queues/threshold")
    rows = page.locator(".detail tbody tr:not(.gap)")
    expect(rows.first).to_be_visible()
    rows.first.click()
    expect(page.locator(".payload pre")).to_be_visible()
    for way in ("text", "hex", "JSON"):
        page.get_by_role("group", name="Data as").get_by_role("button", name=way).click()
        expect(page.locator(".payload pre")).not_to_be_empty()
    # Looking has changed nothing.
    assert node.ask("/v1/queues/threshold/events?part=dead&limit=1000")[1]["events"] == dead
    assert node.queue("threshold")["dead"] == counts["dead"]
    number = int(rows.first.locator("th").inner_text())
    good = json.dumps(good_reading())
    edit = page.get_by_role("button", name="Edit")
    edit.click()
    page.get_by_label("Other data for the event").fill(good)
    page.get_by_role("button", name="Replay with this data").click()
    expect(page.locator("dialog code")).to_have_text(f"lighter queue replay threshold {number} --file FILE")
    page.locator("dialog").get_by_role("button", name="Replay").click()
    wait_for("the ack of what was mended", lambda: node.queue("threshold")["acked"] > counts["acked"])
    left = node.ask("/v1/queues/threshold/events?part=dead&limit=1000")[1]["events"]
    assert number not in [one["sequence"] for one in left] and len(left) == len(dead) - 1
    visitor.end()


def good_reading() -> dict:
    """As the kits send it; see examples/co2/threshold."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    return {"data": [{"recorded_at": now, "sensors": [{"id": 158, "value": 612.0}]}]}


def all_that_match_are_replayed_and_what_goes_round_stays(browser: Browser, node: Node) -> None:
    node.lighter("push", "threshold", "--data", "{", "--subject", "device/sck/r/readings")
    wait_for("a dead letter", lambda: node.queue("threshold")["dead"] > 0)
    visitor = Visitor(browser, node)
    page = visitor.page
    visitor.go("queues/threshold")
    for _ in range(6):
        before = node.queue("threshold")["died"]
        page.get_by_label("Filter by reason").fill("no JSON")
        page.get_by_label("Filter by reason").press("Enter")
        page.get_by_role("button", name="Replay these").click()
        dialog = page.locator("dialog")
        expect(dialog.locator("code")).to_have_text("lighter queue replay threshold --reason 'no JSON'")
        if dialog.get_by_label("replayed five times already").count():
            dialog.get_by_role("button", name="Cancel").click()
            break
        dialog.get_by_role("button", name="Replay").click()
        wait_for("the letters that died again", lambda before=before: node.queue("threshold")["died"] > before)
        expect(dialog).to_have_count(0)
    else:
        raise AssertionError("they go round for ever")
    visitor.end()


def a_token_that_may_look_sees_numbers_and_no_data(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node, "look")
    page = visitor.page
    token = visitor.link.split("token=")[1]
    for path in ("/v1/queues/threshold/events?part=dead", "/v1/functions/-/logs", "/v1/deployments", "/v1/audit", "/v1/events"):
        assert node.ask(path, token)[0] == 403, path
    for path in ("/v1/queues", "/v1/stats", "/v1/flow", "/v1/functions", "/v1/units"):
        assert node.ask(path, token)[0] == 200, path
    visitor.go("queues/threshold")
    expect(page.locator(".detail .facts").first).to_contain_text("acked")
    for name in ("Replay all", "Discard all", "Pause the queue"):
        expect(page.get_by_role("button", name=name)).to_have_count(0)
    expect(page.locator(".detail .note")).to_contain_text("look")
    visitor.go("node")
    expect(page.get_by_text("Who did what")).to_be_hidden()
    visitor.end()


def what_strangers_write_is_shown_as_text(browser: Browser, node: Node) -> None:
    node.lighter("push", "threshold", "--data", HOSTILE, "--type", HOSTILE, "--subject", HOSTILE)
    visitor = Visitor(browser, node)
    page = visitor.page

    def pushed() -> bool:
        dead = node.ask("/v1/queues/threshold/events?part=dead&limit=1000")[1]["events"]
        return any(one["event"]["type"] == HOSTILE for one in dead)

    wait_for("the dead letter of a stranger", pushed)
    visitor.go("queues/threshold")
    row = page.locator(".detail tbody tr:not(.gap)", has_text=HOSTILE).first
    row.scroll_into_view_if_needed()
    row.click()
    expect(page.locator(".payload .facts")).to_contain_text(HOSTILE)
    expect(page.locator(".payload pre")).to_contain_text(HOSTILE)
    visitor.go("logs")
    page.get_by_label("Filter by text").fill("threshold")
    assert page.locator("main img, main script").count() == 0
    visitor.end()


def it_comes_back_by_itself_after_the_node_was_killed(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    visitor.go("functions")
    state = visitor.page.locator(".link")
    node.kill()
    expect(state).to_have_text("no answer, trying again")
    node.start()
    expect(state).to_have_text("live")
    node.publish(3, 0.0)
    row = visitor.page.get_by_role("row").filter(has=visitor.page.get_by_role("link", name="threshold", exact=True))
    wait_for("calls after the restart", lambda: int(row.locator("td").nth(7).inner_text()) >= 3)
    visitor.end()


def every_view_fits_and_can_be_read_in_both_lights(browser: Browser, node: Node) -> None:
    for light, width in (("light", 1360), ("dark", 320)):
        visitor = Visitor(browser, node, "admin", color_scheme=light, viewport={"width": width, "height": 800})
        page = visitor.page
        page.evaluate(AXE)
        for view in [*VIEWS, "functions/threshold", "queues/threshold", "events/followed-1"]:
            visitor.go(view)
            expect(page.locator("main .card").first).to_be_attached()
            wide = page.evaluate("document.documentElement.scrollWidth")
            assert wide <= width, f"{view} is {wide} wide in {width}"
            found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
            told = [(one["id"], [node["html"][:120] for node in one["nodes"][:3]]) for one in found]
            assert not told, f"{view} in {light}: {told}"
        visitor.end()


def the_keyboard_alone_is_enough(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    page = visitor.page

    def focus(what: str) -> None:
        for _ in range(60):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.textContent").strip() == what:
                return
        raise AssertionError(f"Tab does not reach {what}")

    focus("Functions")
    page.keyboard.press("Enter")
    expect(page.locator("main .grid").first).to_be_visible()
    focus("calls/s")
    page.keyboard.press("Enter")
    expect(page.locator("th[aria-sort=descending]").first).to_have_text("calls/s")
    page.keyboard.press("/")
    page.keyboard.type("thresh")
    expect(page.locator("main h1").first).to_contain_text("1 of")
    focus("threshold")
    page.keyboard.press("Enter")
    expect(page.locator(".detail h1")).to_contain_text("threshold")
    page.keyboard.press("3")
    expect(page).to_have_title("Queues – Lighterage")
    page.keyboard.press("f")
    expect(page.locator(".link")).to_have_text("frozen")
    visitor.end()


def one_stream_takes_the_place_of_asking_again_and_again(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    page, asked = visitor.page, []
    visitor.go("functions")
    page.on("request", lambda request: "/v1/" in request.url and asked.append(request.url.partition("/v1/")[2]))
    drawn = "performance.getEntriesByName('draw').length"
    before = page.evaluate(drawn)
    wait_for("lines of the stream", lambda: page.evaluate(drawn) >= before + 4)
    assert asked == [], asked
    # Frozen it ends, and another one begins when it goes on.
    page.keyboard.press("f")
    expect(page.locator(".link")).to_have_text("frozen")
    page.keyboard.press("f")
    wait_for("another stream", lambda: [one for one in asked if one.startswith("live")])
    visitor.end()


def an_event_is_followed_through_its_tries_and_what_it_set_off(browser: Browser, node: Node) -> None:
    node.lighter("push", "threshold", "--id", "followed-1", "--data", "{", "--subject", "device/sck/r/readings")
    wait_for("the handlings", lambda: node.ask("/v1/events?id=followed-1")[0] == 200)
    visitor = Visitor(browser, node)
    page = visitor.page
    visitor.go("events")
    expect(page.get_by_role("link", name="followed-1").first).to_be_visible()
    page.get_by_role("group", name="Which handlings").get_by_role("button", name="failed").click()
    page.get_by_role("link", name="followed-1").first.click()
    expect(page.locator(".trail li").first).to_contain_text("threshold try 1 by threshold v1")
    expect(page.locator(".trail")).to_contain_text("no JSON")
    # A dead letter leads to its handlings.
    visitor.go("queues/threshold")
    page.locator(".detail tbody tr:not(.gap)").first.click()
    expect(page.get_by_role("link", name="follow it")).to_have_attribute("href", re.compile("^#/events/."))
    visitor.end()


def times_of_a_function_are_spread_over_bars(browser: Browser, node: Node) -> None:
    node.publish(20, 0.0)
    visitor = Visitor(browser, node)
    visitor.go("functions/threshold")
    bars = visitor.page.locator(".spread rect")
    expect(bars.first).to_be_attached()
    titles = visitor.page.locator(".spread title").all_text_contents()
    counted = sum(int(title.split(" ")[0].replace(",", "")) for title in titles)
    assert counted >= 20, counted
    visitor.end()


def what_devices_expected_is_beside_what_it_took(browser: Browser, node: Node) -> None:
    expected = {"predicted_us": 1000, "other": "local", "other_us": 9000}
    one = {"function": "invert", "place": "node", "why": "best", "actual_us": 3000, **expected}
    assert node.ask("/v1/decisions", body={"device": HOSTILE, "decisions": [one, {**one, "place": "local"}]})[0] == 204
    visitor = Visitor(browser, node, "look")
    page = visitor.page
    visitor.go("offloading")
    expect(page.locator("main h1")).to_contain_text("2 decisions")
    assert page.locator(".plot circle").count() == 2
    row = page.get_by_role("region", name="Decisions", exact=True).locator("tbody tr:not(.gap)").first
    expect(row).to_contain_text("× 3.00")
    expect(row).to_contain_text(HOSTILE)
    visitor.end()


def the_api_describes_itself_on_the_page(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    page = visitor.page
    visitor.go("api")
    page.get_by_label("Filter the endpoints").fill("/v1/live")
    expect(page.locator(".reference details")).to_have_count(1)
    page.locator(".reference summary").click()
    expect(page.locator(".reference dl")).to_contain_text("function?")
    visitor.end()


def dead_letters_of_a_reason_are_discarded(browser: Browser, node: Node) -> None:
    node.lighter("push", "threshold", "--data", "{", "--subject", "device/sck/r/readings")
    wait_for("a dead letter", lambda: node.queue("threshold")["dead"] > 0)
    visitor = Visitor(browser, node)
    page = visitor.page
    visitor.go("queues/threshold")
    page.get_by_label("Filter by reason").fill("no JSON")
    page.get_by_label("Filter by reason").press("Enter")
    page.get_by_role("button", name="Discard these").click()
    expect(page.locator("dialog code")).to_have_text("lighter queue purge threshold --reason 'no JSON'")
    page.locator("dialog").get_by_role("button", name="Discard").click()
    reasons = "/v1/queues/threshold/events?part=dead&limit=1000&reason=no%20JSON"
    wait_for("that they are gone", lambda: not node.ask(reasons)[1]["events"])
    visitor.end()


def the_map_shows_what_lighter_flow_draws(browser: Browser, node: Node) -> None:
    visitor = Visitor(browser, node)
    boxes = visitor.page.locator(".stage")
    names = {one["name"] for one in json.loads(node.lighter("flow", "--live", "--json"))["stages"] if "name" in one}
    expect(boxes.first).to_be_visible()
    shown = set(visitor.page.locator(".stage .name").all_text_contents())
    assert {"threshold", "logger", "notify", "slack"} <= shown & names, (shown, names)
    box = visitor.page.get_by_role("link", name="function threshold")
    box.click()
    expect(visitor.page).to_have_title("threshold – Lighterage")
    visitor.end()


def the_fleet_is_drawn_with_what_runs_where_and_who_is_away(browser: Browser, _: Node) -> None:
    with tempfile.TemporaryDirectory() as folder:
        members = [Member(Path(folder) / name, name) for name in ("server-1", "pi-7", "pi-8")]
        try:
            anchor, near, far = members
            anchor.lighter("fleet", "new", "campus")
            token = anchor.lighter("fleet", "invite", "--times", "2").strip()
            for member in (near, far):
                member.lighter("fleet", "join", token)
            wait_for("a fleet of three", lambda: all(len(one.ask("/v1/fleet")[1]["nodes"]) == 3 for one in members))
            anchor.lighter("deploy", str(ROOT / "examples/hello"), "--fleet")
            look_at_the_fleet(browser, anchor, far)
        finally:
            for member in members:
                member.kill()


def look_at_the_fleet(browser: Browser, anchor: Node, far: Node) -> None:
    # Who may look sees all of it.
    visitor = Visitor(browser, anchor, "look")
    page = visitor.page
    page.keyboard.press("8")
    expect(page).to_have_title("Fleet – Lighterage")
    expect(page.locator("main h1")).to_have_text("Fleet campus")
    expect(page.locator(".fleet .stage")).to_have_count(3)
    assert page.locator(".fleet .name").all_text_contents()[0] == "server-1 ⚓"
    expect(page.locator("main .note").first).to_contain_text("2 of 2 others reached")
    its_name = page.get_by_role("rowheader", name="hello", exact=True)
    runs = page.get_by_role("region", name="Functions of the fleet").get_by_role("row").filter(has=its_name)
    expect(runs.locator("td").first).to_have_text("3")
    for name in ("server-1", "pi-7", "pi-8"):
        expect(runs).to_contain_text(name)
        deployed = page.get_by_role("region", name="Deployments of the fleet").get_by_role("row").filter(has_text=name)
        expect(deployed).to_contain_text("ready")
    far.kill()
    box = page.locator(".fleet .stage").filter(has_text="pi-8")
    expect(box.locator(".head")).to_contain_text("away, heard")
    expect(page.locator(".fleet .way[data-is=away]")).to_have_count(1)
    expect(page.locator("main .note").first).to_contain_text("1 of 2 others reached")
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, { resultTypes: ['violations'] })")["violations"]
    assert not found, [(one["id"], one["nodes"][0]["html"][:120]) for one in found]
    FLEET_PICTURE.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(FLEET_PICTURE))

    # Names of nodes and functions are bounded by our own nodes; another's may be anything. And calls and events go there.
    asked = []

    def lie(route) -> None:
        reply = route.fetch()
        said = reply.json()
        asked.append(said)
        load = {"round_trip_ms": 0.4, "wait_ms": 1.0, "places": 2, "speed": 1.0, "calls": 100 * len(asked)}
        said["nodes"][1].update(load=load, mail_waiting=7)
        said["name"] = HOSTILE
        said["nodes"][1].update(name=HOSTILE, functions=[HOSTILE], version=HOSTILE, address=HOSTILE)
        route.fulfill(response=reply, json=said)

    page.route("**/v1/fleet", lie)
    expect(page.locator("main h1")).to_have_text(f"Fleet {HOSTILE}")
    expect(page.get_by_role("region", name="Functions of the fleet")).to_contain_text(HOSTILE)
    expect(page.locator(".fleet title").filter(has_text=HOSTILE)).to_have_count(1)
    expect(page.locator(".fleet .along").first).to_have_text(re.compile(r"^[\d.]+ calls/s → · 7 events → · 400 µs$"))
    assert page.locator("main img, main script").count() == 0
    visitor.end()


def a_picture_of_the_overview(browser: Browser, node: Node, picture: Path) -> None:
    picture.parent.mkdir(parents=True, exist_ok=True)
    visitor = Visitor(browser, node, viewport={"width": 1360, "height": 900})
    expect(visitor.page.locator(".tile").first).to_be_visible()
    # Two points make a line, and they may be a minute apart.
    expect(visitor.page.locator(".spark-line").first).to_have_attribute("points", re.compile(" .* "), timeout=150_000)
    # Two seconds' worth, so that the page is told of it while it lasts.
    node.publish(1000, 0.1)
    expect(visitor.page.locator(".stage[data-is=busy]").first).to_be_visible()
    visitor.page.screenshot(path=str(picture))
    visitor.end()


PARTS = [
    the_token_leaves_the_address_at_once_and_no_other_host_is_asked,
    what_happens_is_seen_without_a_reload,
    the_map_shows_what_lighter_flow_draws,
    a_dead_letter_is_read_edited_replayed_and_acked,
    all_that_match_are_replayed_and_what_goes_round_stays,
    one_stream_takes_the_place_of_asking_again_and_again,
    an_event_is_followed_through_its_tries_and_what_it_set_off,
    times_of_a_function_are_spread_over_bars,
    what_devices_expected_is_beside_what_it_took,
    the_api_describes_itself_on_the_page,
    a_token_that_may_look_sees_numbers_and_no_data,
    what_strangers_write_is_shown_as_text,
    every_view_fits_and_can_be_read_in_both_lights,
    the_keyboard_alone_is_enough,
    the_fleet_is_drawn_with_what_runs_where_and_who_is_away,
    dead_letters_of_a_reason_are_discarded,
    it_comes_back_by_itself_after_the_node_was_killed,
]


def main() -> int:
    parser = argparse.ArgumentParser(description="Looks at the dashboard in a real browser.")
    parser.add_argument("--browser", required=True, help="the program of Chromium")
    parser.add_argument("--picture", required=True, type=Path, help="where the picture of the overview goes")
    parser.add_argument("names", nargs="*", help="words of the parts to try; all without")
    asked = parser.parse_args()
    # As root there is no sandbox to be had; and a browser of its own asks its maker nothing.
    options = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
    expect.set_options(timeout=PATIENCE_SECONDS * 1000)
    failed = 0
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        node = Node(Path(folder) / "data")
        browser = playwright.chromium.launch(executable_path=asked.browser, args=options)
        try:
            for part in PARTS:
                if asked.names and not any(name in part.__name__ for name in asked.names):
                    continue
                began = time.monotonic()
                try:
                    part(browser, node)
                    print(f"ok      {part.__name__} ({time.monotonic() - began:.1f} s)", flush=True)
                except (AssertionError, Exception) as error:
                    failed += 1
                    print(f"FAILED  {part.__name__}: {error}", flush=True)
            a_picture_of_the_overview(browser, node, asked.picture)
        finally:
            browser.close()
            node.kill()
    print(f"the dashboard in {asked.browser}: {failed} failed, a picture is in {asked.picture}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
