"""The page of a report: complete in itself, safe with any names, and alive in a real browser."""

import json
import re
import shutil
import time
from html.parser import HTMLParser

import pandas as pd
import pytest

from feelgood.report.kinds import MAKERS
from feelgood.report.page import build_report
from feelgood.report.provenance import provenance
from feelgood.report.tables import best, scores_table
from feelgood.runs.store import as_command

HOSTILE = "<script>alert('x')</script>&\"'"


class Reader(HTMLParser):
    """The elements, text and scripts of a page."""

    def __init__(self, page):
        super().__init__()
        self.elements, self.text, self.scripts, self._open = [], [], [], None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.elements.append((tag, dict(attrs)))
        self._open = tag

    def handle_endtag(self, tag):
        self._open = None

    def handle_data(self, data):
        (self.scripts if self._open == "script" else self.text).append(data)


@pytest.fixture(scope="module")
def pages(studies):
    return {name: build_report([folder]) for name, folder in studies.items()}


@pytest.fixture(scope="module")
def together(studies):
    return build_report(list(studies.values()))


@pytest.fixture(scope="module")
def read(pages):
    return {name: Reader(page) for name, page in pages.items()}


@pytest.mark.parametrize(
    ("study", "kinds"),
    [
        ("nchain", "lengths curves aggregate profiles efficiency sensitivity frontier sweep"),
        ("regret", "curves exponents budget errors complexity"),
        ("samplers", "distances"),
        ("atari", "curves"),
    ],
)
def test_a_page_holds_every_chart_with_its_data(read, study, kinds):
    page = read[study]
    charts = json.loads(page.scripts[0])
    assert [chart["kind"] for chart in charts] == kinds.split()
    blocks = [attrs for tag, attrs in page.elements if tag == "section" and "data-chart" in attrs]
    assert [attrs["data-kind"] for attrs in blocks] == kinds.split()
    text = " ".join(page.text)
    assert text.count("Provenance of this figure") == len(charts)
    for chart in charts:
        assert chart["title"] in text
        assert f"--kind {chart['kind']}" in text
        assert MAKERS[chart["kind"]].table in text


def test_a_page_asks_for_nothing_and_runs_no_script_but_its_own(pages, read):
    for name, page in pages.items():
        outside = set(re.findall(r"(?:https?:)?//[\w.-]+\.\w+[^\s\"'<]*", page)) - {"http://www.w3.org/2000/svg"}
        assert not outside, outside
        assert not re.search(r"@import|url\((?!#|\\?`?#)", page.replace("url(#${clip})", ""))
        policy = next(a["content"] for t, a in read[name].elements if a.get("http-equiv") == "Content-Security-Policy")
        assert policy.startswith("default-src 'none'")
        assert "unsafe-eval" not in policy
        assert "script-src 'sha256-" in policy
        for tag, attrs in read[name].elements:
            assert not any(key.startswith("on") for key in attrs), (tag, attrs)
            for key in ("src", "href"):
                assert attrs.get(key, "#").startswith(("#", "data:")), (tag, attrs)
        assert len(page) < 300_000


def test_names_commands_and_notes_are_escaped_wherever_they_stand(pages, read):
    page, seen = pages["nchain"], read["nchain"]
    assert HOSTILE not in page
    assert "<script>alert" not in page
    assert len([tag for tag, _ in seen.elements if tag == "script"]) == 2
    assert "".join(seen.text).count(HOSTILE) >= 4  # the table of scores, the lead, the command, the note
    assert any(series["name"] == HOSTILE for series in json.loads(seen.scripts[0])[0]["panels"][0]["series"])


def test_a_hostile_title_and_folder_are_escaped(studies, tmp_path):
    folder = tmp_path / "<img src=x onerror=alert(1)>"
    shutil.copytree(studies["atari"], folder)
    seen = Reader(build_report([folder], title="</title><script>x"))
    assert [tag for tag, _ in seen.elements].count("script") == 2
    assert not any(tag == "img" for tag, _ in seen.elements)
    assert any("<img src=x onerror=alert(1)>" in piece for piece in seen.text)


def test_a_page_shows_known_facts_of_a_run_only(read):
    text = "".join(read["nchain"].text)
    for piece in ("This study is not finished", "13,000 steps", "2 × cpu", "2 min", "0123456789", "jax 0.10.2"):
        assert piece in text, piece
    bare = "".join(read["atari"].text)
    assert "it is not known how these results were made" in bare
    assert "not finished" not in bare
    regret = "".join(read["regret"].text)
    assert "feelgood run regret --algorithms lsvi_ucb ase_ulmc ase_exact --mdps lock simplex" in regret


def test_several_runs_stand_on_one_page(together):
    seen = Reader(together)
    assert [attrs["id"] for tag, attrs in seen.elements if tag == "article"] == ["run-0", "run-1", "run-2", "run-3"]
    numbers = [attrs["data-chart"] for _, attrs in seen.elements if "data-chart" in attrs]
    assert numbers == [str(i) for i in range(len(json.loads(seen.scripts[0])))]


def test_the_table_of_scores_and_the_cards_hold_the_best_of_every_task(studies):
    from feelgood.report.kinds import tables_of

    tables = tables_of(studies["regret"])
    cards = best(tables)
    assert cards[0][:2] == ("lock, tuned", "LSVI-UCB")
    assert cards[0][4].startswith("next: LSVI-ASE, ULMC, ")
    noisy = tables["curves"].assign(regret=lambda t: t["regret"] + 30 * t["seed"])
    assert all(card[4].startswith("intervals overlap: ") for card in best({"curves": noisy}))
    alone = noisy[noisy["seed"] == noisy["seed"].min()]  # one run has no interval
    assert all(card[4].startswith("next: ") for card in best({"curves": alone}))
    table = scores_table(tables).html
    assert table.count('class="top"') == 4
    assert re.search(r"<td>LSVI-UCB</td><td class=\"top\"", table)
    assert best({"curves": tables["budget"]}) == []
    assert scores_table({}) is None


def test_scores_have_bootstrap_intervals_within_the_range_of_the_runs():
    scores = {0: 500.0, 1: 500.0, 2: 150.0}  # by Student's t the interval would end at 885
    rows = [{"agent": "dqn", "environment": "pole", "seed": s, "step": 1, "return": y} for s, y in scores.items()]
    found = scores_table({"curves": pd.DataFrame(rows)})
    assert ">383.33 <small>[150.00, 500.00]</small><" in found.html
    assert "over up to 3 seeds, with its 95% bootstrap interval in brackets. With fewer than ten seeds" in found.note
    assert best({"curves": pd.DataFrame(rows)})[0][2:4] == ("383.33", "[150.00, 500.00]")


def test_ablations_stand_below_all_agents():
    returns = {"dqn": 1.0, "steady_fg_ulmcdqn": 5.0, "steady_fg_ulmcdqn_no_average": 7.0}
    table = pd.DataFrame({"agent": agent, "seed": 0, "step": 1, "return": score} for agent, score in returns.items())
    names = re.findall(r"<tr><td>(.*?)</td>", scores_table({"curves": table}).html)
    assert names == ["Steady FG-ULMCDQN", "DQN", "Steady FG-ULMCDQN, no average"]


@pytest.mark.parametrize(("lengths", "is_short"), [([25, 50], True), ([25, 100], False), (["?"], False), ([], False)])
def test_the_page_of_short_chains_notes_that_feel_good_does_not_help_on_them(tmp_path, lengths, is_short):
    manifest = {"study": "nchain", "spec": {"lengths": lengths, "agents": ["dqn"]}}
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    assert ("too short for the feel-good term" in provenance(tmp_path).lead) == is_short


def test_a_command_is_rebuilt_from_options():
    spec = {"num_seeds": 3, "lengths": [5, 7], "cold": [], "ablate": False, "output": "a b", "x": None, "on": True}
    assert (
        as_command("nchain", spec) == "feelgood run nchain --num-seeds 3 --lengths 5 7 --no-ablate --output 'a b' --on"
    )


@pytest.mark.parametrize(
    "content", ['{"study": 3, "spec": [], "versions": "x", "devices": 7, "wall_seconds": "y"}', "{}"]
)
def test_a_manifest_of_another_shape_is_read_as_far_as_it_goes(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    assert provenance(tmp_path).title == tmp_path.name


@pytest.mark.parametrize("content", ["[1]", "{", "3"])
def test_a_manifest_that_is_none_is_refused(tmp_path, content):
    (tmp_path / "manifest.json").write_text(content)
    with pytest.raises(ValueError, match=r"manifest\.json"):
        provenance(tmp_path)


def test_a_folder_with_nothing_to_show_is_refused_with_the_reason(tmp_path):
    with pytest.raises(ValueError, match="at least one folder"):
        build_report([])
    (tmp_path / "notes.csv").write_text("x,y\n1,2\n")
    with pytest.raises(ValueError, match="none of notes is a table that a report shows"):
        build_report([tmp_path])


# In a real browser ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def opened(browser, together, tmp_path_factory):
    """Opens the page of all studies afresh; the address of its file."""
    file = tmp_path_factory.mktemp("page") / "report.html"
    file.write_text(together)
    browser.get_log("performance")

    def open_():
        browser.get(file.as_uri())
        deadline = time.time() + 600
        while (
            not browser.execute_script("return document.querySelectorAll('.panels svg').length")
            and time.time() < deadline
        ):
            time.sleep(0.05)
        return browser

    open_.address = file.as_uri()
    return open_


def test_the_page_loads_without_errors_and_without_a_request(opened):
    page = opened()
    assert page.get_log("browser") == []
    events = [json.loads(entry["message"])["message"] for entry in page.get_log("performance")]
    requested = [e["params"]["request"]["url"] for e in events if e["method"] == "Network.requestWillBeSent"]
    assert {url for url in requested if not url.startswith("data:")} == {opened.address}
    drawn = page.execute_script(
        "return [...document.querySelectorAll('[data-chart]')].map(b => b.querySelectorAll('.panels svg').length)"
    )
    charts = json.loads(page.execute_script("return document.getElementById('charts').textContent"))
    assert drawn == [min(len(chart["panels"]), 12 if chart["panels"][0]["heat"] else 99) for chart in charts]
    assert (
        page.execute_script("return document.querySelectorAll('svg [d*=NaN], svg [x1*=NaN], svg [cx*=NaN]').length")
        == 0
    )


def test_the_content_policy_blocks_scripts_and_requests(opened):
    page = opened()
    done = page.execute_script(
        "const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s);"
        "return [window.bad ?? 0, document.querySelectorAll('[onerror], [onload]').length];"
    )
    assert done == [0, 0]


def test_a_click_on_a_head_sorts_the_table_and_another_turns_it_around(opened):
    page = opened()
    column = """
        const t = document.querySelector('table'), b = t.tHead.rows[0].cells[arguments[0]].querySelector('button');
        b.click();
        return [...t.tBodies[0].rows].map(r => r.cells[arguments[0]].dataset.v ?? r.cells[arguments[0]].textContent);"""
    falling = [float(v) for v in page.execute_script(column, 1)]
    assert len(falling) == 3
    assert falling == sorted(falling, reverse=True)
    assert [float(v) for v in page.execute_script(column, 1)] == sorted(falling)
    names = page.execute_script(column, 0)
    assert names == sorted(names)
    assert page.execute_script("return document.querySelector('th').getAttribute('aria-sort')") == "ascending"


def test_the_legend_takes_a_curve_away_and_brings_it_back(opened):
    page = opened()
    count = "return document.querySelector('[data-kind=curves]').querySelectorAll('[data-series=DQN]').length"
    click = """
        const all = document.querySelector('[data-kind=curves]').querySelectorAll('.legend button');
        const b = [...all].find(b => b.textContent === 'DQN');
        b.click(); return b.getAttribute('aria-pressed');"""
    assert page.execute_script(count) == 2
    assert page.execute_script(click) == "false"
    assert page.execute_script(count) == 0
    assert page.execute_script(click) == "true"
    assert page.execute_script(count) == 2


def test_a_pointer_finds_the_values_of_its_place(opened):
    page = opened()
    shown = page.execute_script("""
        const block = document.querySelector('[data-kind=curves]'), svg = block.querySelector('.panels svg');
        svg.scrollIntoView({ block: 'center', behavior: 'instant' });
        const box = svg.getBoundingClientRect();
        const place = { clientX: box.right - 14, clientY: box.top + 60, bubbles: true };
        svg.dispatchEvent(new PointerEvent('pointermove', place));
        const tip = block.querySelector('.tip');
        return [tip.hidden, tip.textContent];""")
    hidden, text = shown
    chart = next(
        c
        for c in json.loads(page.execute_script("return document.getElementById('charts').textContent"))
        if c["kind"] == "curves"
    )
    assert not hidden
    assert "N = 25 · environment steps 13,000" in text
    for series in chart["panels"][0]["series"]:
        assert series["name"] in text
        assert f"{series['y'][-1]:.4g}" in text


def test_light_and_dark_follow_the_system_and_the_button(opened):
    page = opened()
    theme = "return document.documentElement.dataset.theme"
    try:
        seen = []
        for wish in ("dark", "light"):
            media = {"features": [{"name": "prefers-color-scheme", "value": wish}]}
            page.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
            page.execute_script("localStorage.clear()")
            opened()
            seen.append(
                (
                    page.execute_script(theme),
                    page.execute_script("return getComputedStyle(document.body).backgroundColor"),
                )
            )
        assert [name for name, _ in seen] == ["dark", "light"]
        assert seen[0][1] != seen[1][1]
        page.execute_script("document.getElementById('theme').click()")
        assert page.execute_script(theme) == "dark"
        assert opened().execute_script(theme) == "dark"  # remembered
    finally:
        page.execute_script("localStorage.clear()")
        page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_a_phone_sees_the_whole_width(opened):
    page = opened()
    try:
        size = {"width": 360, "height": 740, "deviceScaleFactor": 2, "mobile": True}
        page.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        opened()
        assert page.execute_script("return document.documentElement.scrollWidth") <= 360
        widths = page.execute_script(
            "return [...document.querySelectorAll('.panels svg')].map(s => s.getBoundingClientRect().right)"
        )
        assert max(widths) <= 360
    finally:
        page.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
