"""The HTML report: what is in it, its size, and, with a browser, what its script does."""

from __future__ import annotations

import builtins
import re
import shutil
import subprocess
import sys
from html.parser import HTMLParser

import pytest
from made_records import ROOT, function, record, site

from fullgraph.errors import MissingBackendError
from fullgraph.report.html import render_html
from fullgraph.testing import Outcome

SAID = {
    "explanation": "Detected data-dependent branching (e.g. `if my_tensor.sum() > 0:`).",
    "hints": ("This graph break is fundamental.", "Use `torch.cond`."),
}


def source(file, line):
    return f"    line_{line} = {file.rpartition('/')[2]!r}\n"


def page(*functions, **more):
    return render_html(record(*functions), root=ROOT, source=source, **more)


class Text(HTMLParser):
    """The page as text, with the ids and the targets of its links."""

    def __init__(self, html):
        super().__init__()
        self.ids, self.links, self.parts, self._in = [], [], [], ""
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self._in = tag
        if "id" in found:
            self.ids.append(found["id"])
        if tag == "a":
            self.links.append(found["href"])

    def handle_data(self, data):
        if self._in not in ("style", "script"):
            self.parts.append(data)

    @property
    def text(self):
        return " ".join(" ".join(self.parts).split())


def test_a_break_is_shown_with_its_source_and_what_to_write_instead():
    text = Text(page(function(sites=[site(41, **SAID)], compiles=2))).text
    assert "mypkg.stats:mode" in text
    assert "mypkg/stats.py:41" in text
    assert "39 line_39 = 'stats.py'" in text
    assert "43 line_43" in text
    assert "Instead: a Python if or while on a tensor's value" in text
    assert "Use `torch.cond`." in text
    assert "failed guards: L['x'].size()[0] == 1" in text


def test_every_link_leads_somewhere_in_the_page():
    html = page(
        function("m:f", sites=[site(41, **SAID), site(50, "other")]),
        function("m:g", sites=[site(41, **SAID), site(9, torch_bug="slice-attribute-error")]),
    )
    found = Text(html)
    assert found.links
    assert {link.removeprefix("#") for link in found.links} <= set(found.ids)
    assert len(found.ids) == len(set(found.ids))


def test_a_site_of_two_functions_is_shown_once_and_names_both():
    text = Text(page(function("m:f", sites=[site()]), function("m:g", sites=[site()]))).text
    assert text.count("39 line_39") == 1
    assert "met by m:f , m:g" in text


def test_known_torch_bugs_stand_apart():
    text = Text(
        page(
            function(
                sites=[site(torch_bug="slice-attribute-error")],
                calls={Outcome.TORCH_BUG: 2},
                whole=0,
            )
        )
    ).text
    assert "Known bugs of torch" in text
    assert "slice-attribute-error" in text
    assert "Instead:" not in text


def test_overview_counts_by_module_and_mode():
    text = Text(
        page(
            function("m.a:f"),
            function("m.a:g", sites=[site()]),
            function("m.a:f", mode="fullgraph"),
            function("m.b:f", mode="eager"),
        )
    ).text
    assert "m.a 1 of 2 1 of 1" in text
    assert "m.b" not in text


def test_text_from_records_is_escaped():
    html = page(
        function("m:<f>", sites=[site(reason="<script>alert(1)</script> & co", **SAID)]),
        title="a < b",
        notes=["<b>note</b>"],
    )
    assert "<script>alert" not in html
    assert "<b>note" not in html
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; co" in html


def test_nothing_is_fetched():
    html = page(function(sites=[site()]))
    assert "default-src 'none'" in html
    assert not re.search(r"(src|href)=[\"']?(https?:|//)", html)
    assert "url(" not in html
    assert "@import" not in html


def test_without_source_the_report_is_still_whole():
    html = render_html(record(function(sites=[site()])), source=lambda file, line: "")
    assert "Data-dependent branching" in html
    assert "<pre>" not in html


def test_an_empty_record_says_so():
    assert "No function was called in a compiled mode." in page()


def test_two_thousand_functions_are_less_than_two_megabytes():
    functions = []
    for n in range(2000):
        name = f"mypkg.module{n % 40}:function_number_{n}"
        sites = [site(n + 5, file=f"{ROOT}/src/mypkg/module{n % 40}.py", **SAID)] if n % 2 else []
        functions.append(function(name, sites=sites, compiles=1 + n % 5))
        functions.append(function(name, mode="fullgraph", sites=sites, compiles=1 + n % 5))
    html = page(*functions)
    assert len(html.encode()) < 2_000_000
    assert html.count("<tr data-l=") == 2000


def test_without_jinja2_the_error_says_what_to_install(monkeypatch):
    real = builtins.__import__

    def refuse(name, *args, **kwargs):
        if name == "jinja2":
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.delitem(sys.modules, "jinja2", raising=False)
    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(MissingBackendError, match=r"needs jinja2.*fullgraph\[report\]"):
        page(function())


# --- in a browser ---

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
DRIVE = """
<script>
const say = [];
const names = () => [...document.querySelectorAll("#functions tbody tr")]
  .filter((row) => !row.hidden).map((row) => row.querySelector("code").textContent).join(" ");
const heading = (text) => [...document.querySelectorAll("#functions thead button")]
  .find((button) => button.textContent === text);
say.push("start " + names());
heading("sites").click(); say.push("sites " + names());
heading("sites").click(); say.push("again " + names());
heading("compile").click(); say.push("compile " + names());
const find = document.getElementById("find");
find.value = "beta"; find.dispatchEvent(new Event("input")); say.push("find " + names());
find.value = ""; find.dispatchEvent(new Event("input"));
const level = document.getElementById("level");
level.value = "good"; level.dispatchEvent(new Event("input")); say.push("good " + names());
say.push(document.getElementById("count").textContent);
say.push(getComputedStyle(document.body).backgroundColor);
document.body.innerHTML = "<pre>SAID " + say.join(" | ") + " DIAS</pre>";
</script>
"""


def in_browser(tmp_path, html, *flags):
    path = tmp_path / "report.html"
    path.write_text(html)
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    done = subprocess.run(
        [*command, profile, *flags, path.as_uri()], capture_output=True, text=True, timeout=120
    )
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on the path")
@pytest.mark.parametrize(
    ("flags", "background"),
    [((), "rgb(255, 255, 255)"), (("--blink-settings=preferredColorScheme=0",), "rgb(14, 17, 22)")],
    ids=["light", "dark"],
)
def test_sorting_and_filtering_in_a_browser(tmp_path, flags, background):
    html = page(
        function("m:alpha"),
        function("m:beta", sites=[site(), site(60)]),
        function("m:gamma", sites=[site()]),
    )
    dom = in_browser(tmp_path, html.replace("</body>", DRIVE + "</body>"), *flags)
    said = re.search(r"SAID (.*) DIAS", dom)[1].split(" | ")
    assert said == [
        "start m:alpha m:beta m:gamma",
        "sites m:beta m:gamma m:alpha",
        "again m:alpha m:gamma m:beta",
        "compile m:beta m:gamma m:alpha",
        "find m:beta",
        "good m:alpha",
        "1 of 3",
        background,
    ]


@pytest.mark.slow
@pytest.mark.skipif(CHROMIUM is None, reason="no chromium or google-chrome on the path")
def test_without_javascript_only_the_filter_is_missing(tmp_path):
    """Taken apart by the browser: the page with its script, and what is there without it."""
    html = page(function("m:alpha"), function("m:beta", sites=[site()]))
    look = """<script>
    const shown = (node) => node.checkVisibility();
    document.body.innerHTML = "<pre>SAID " + [
      [...document.querySelectorAll("#functions tbody tr")].filter(shown).length,
      [...document.querySelectorAll("article.site")].filter(shown).length,
      [...document.querySelectorAll("form")].filter(shown).length,
    ].join(" ") + " DIAS</pre>";
    </script>"""
    bare = re.sub(r"<script>.*?</script>", "", html, flags=re.DOTALL)
    seen = [
        re.search(
            "SAID (.*) DIAS", in_browser(tmp_path, text.replace("</body>", look + "</body>"))
        )[1]
        for text in (html, bare)
    ]
    assert seen == ["2 1 1", "2 1 0"]


def test_code_in_advice_is_shown_as_code():
    html = page(function(sites=[site(41, **SAID)]))
    assert "select with <code>xp.where</code>" in html
