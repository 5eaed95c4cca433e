"""The site is complete: menus, links, and everything public is documented."""

import importlib
import importlib.util
import inspect
import json
import re
import subprocess
import tomllib
from functools import cache
from importlib import resources
from itertools import pairwise
from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest

import zae_limiter
from tests.docs.pages import (
    DOCS,
    LINKING,
    ROOT,
    SITE_PAGES,
    anchors,
    blocks,
    in_nav,
    links,
    name_of,
    prose,
    site,
    text_of,
)
from tools import peer_tables, pictures, site_hooks
from zae_limiter._async.management import Management
from zae_limiter.models.audit import AuditAction
from zae_limiter_aggregator import report
from zae_limiter_ops.infra import aggregator, parameters, template

SOURCES = [path for path in (ROOT / "src").rglob("*.py") if "_sync" not in path.parts]
API = "\n".join(page.read_text(encoding="utf-8") for page in (DOCS / "reference/api").glob("*.md"))
MODULES = [
    "zae_limiter.llm",
    "zae_limiter_ops.manifest",
    "zae_limiter.schema",
    "zae_limiter.testing",
    "zae_limiter.web",
    "zae_limiter_aggregator",
    "zae_limiter_provisioner",
]
# Variables of AWS that only its own libraries, or the wire, read.
ENVIRONMENT = re.compile(
    r"""["'](ZAEL_[A-Z_]+|_ZAE_[A-Z_]+|AWS_[A-Z_]+|REQUESTS_CA_BUNDLE|[A-Z]+_COLOR|\
[A-Z_]*(?:TABLE|BUCKET)_NAME)["']""".replace("\\\n", "")
)


def test_every_page_is_in_a_menu():
    pages = {str(page.relative_to(DOCS)) for page in SITE_PAGES}
    decisions = {page for page in pages if re.match(r"adr/\d", page)}
    nav = in_nav(site()["nav"])
    assert len(nav) == len(set(nav))
    assert set(nav) == pages - decisions


def test_every_decision_is_listed():
    listed = {path for path, _ in links(DOCS / "adr/README.md")}
    assert {page.name for page in (DOCS / "adr").glob("0*.md")} <= listed


def test_comments_name_decisions_that_exist():
    records = {page.name[:3] for page in (DOCS / "adr").glob("0*.md")}
    folders = ("src", "tests", "contract", "tools", "benchmarks")
    sources = [path for folder in folders for path in (ROOT / folder).rglob("*.py")]
    named = {
        (str(path.relative_to(ROOT)), number)
        for path in sources
        for number in re.findall(r"\bADR (\d{3})", path.read_text(encoding="utf-8"))
    }
    assert named
    assert not [each for each in sorted(named) if each[1] not in records]


# Pages about the inside. The others name files of the reader, or of an older layout.
INSIDE = [
    *(page for page in (DOCS / "adr").glob("0*.md") if not page.name.startswith("012")),
    *(DOCS / f"contributing/{name}.md" for name in ("architecture", "extending", "testing")),
    *(DOCS / f"contributing/{name}.md" for name in ("clocks", "inside", "write-protocol")),
]


@cache
def tracked():
    """Return the files and folders of the repository."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.splitlines()
    folders = {f"{parent}/" for name in listed for parent in PurePosixPath(name).parents}
    return [f"/{path}" for path in {*listed, *folders}]


@pytest.mark.parametrize("page", INSIDE, ids=name_of)
def test_files_and_folders_that_pages_about_the_inside_name_exist(page):
    named = re.findall(r"`([\w./-]+(?:\.py|/))`", prose(page))
    assert not [each for each in named if not any(path.endswith(f"/{each}") for path in tracked())]


def test_module_paths_of_the_older_layout_are_as_the_record_says():
    """Left column: not importable. Right column: the importable place of the same names."""
    record = text_of("adr/012-packages.md")
    kept = re.search(r"stays importable: (.*?)The other module paths", record, re.DOTALL)[1]
    table = [row.strip("|").split("|") for row in record.splitlines() if row.startswith("| `")]
    names = re.compile(r"`(zae_limiter[\w.]*|\.\w+)`")
    importable = {place for _, instead in table for place in names.findall(instead)}
    importable |= {
        f"zae_limiter{name}" if name.startswith(".") else name for name in names.findall(kept)
    }
    gone = {module for modules, _ in table for module in names.findall(modules)}
    assert {"zae_limiter.limiter", "zae_limiter_aggregator.archiver"} <= gone
    assert {"zae_limiter.models", "zae_limiter_aggregator.processor"} <= importable
    assert not [name for name in sorted(importable) if not _module_exists(name)]
    assert not [name for name in sorted(gone) if _module_exists(name)]


def _module_exists(name):
    try:
        return importlib.util.find_spec(name) is not None
    except ModuleNotFoundError:  # its parent does not exist
        return False


anchors_of = cache(anchors)


@pytest.mark.parametrize("page", LINKING, ids=name_of)
def test_links_and_their_anchors_lead_somewhere(page):
    for path, anchor in links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{name_of(page)} links to {path}"
        if anchor and target.suffix == ".md":
            assert anchor in anchors_of(target), f"{name_of(page)} links to {path}#{anchor}"
        if page.is_relative_to(DOCS):
            assert target.is_relative_to(DOCS), f"{path} is no part of the site"


@pytest.mark.parametrize("page", SITE_PAGES, ids=name_of)
def test_lists_and_tables_begin_after_an_empty_line(page):
    """GitHub draws them without one, too; the site would run them into the text."""
    begins = re.compile(r"(- |\d+\. |\|)")
    text = prose(page).splitlines()
    for before, line in pairwise(text):
        if begins.match(line) and not begins.match(before.lstrip()):
            assert not before.strip() or before.startswith("  "), line


def test_nothing_is_loaded_from_elsewhere():
    settings = site()
    assert settings["theme"]["font"] is False
    assert "extra_javascript" not in settings
    assert all((DOCS / path).is_file() for path in settings["extra_css"])
    for picture in (DOCS / "pictures").glob("*.svg"):
        assert not re.search(r"(?:href|src|url)\W+http", picture.read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", sorted(set(zae_limiter.__all__) - {"__version__"}))
def test_every_public_name_is_in_the_reference(name):
    assert re.search(rf"^::: zae_limiter\.{name}$", API, re.MULTILINE)
    assert f"`{name}`" in text_of("reference/api/index.md")


@pytest.mark.parametrize("name", ["Lease", "RateLimiter", "Repository", "RepositoryBuilder"])
def test_every_method_has_a_docstring(name):
    cls = getattr(zae_limiter, name)
    methods = [each for each in dir(cls) if not each.startswith("_")]
    assert not [each for each in methods if not inspect.getdoc(getattr(cls, each))]


def test_methods_that_a_limiter_takes_from_its_repository_are_listed():
    page = text_of("reference/api/limiter.md")
    functions = {name: each for name, each in vars(Management).items() if inspect.isfunction(each)}
    taken = [name for name, function in functions.items() if hasattr(function, "__wrapped__")]
    assert "create_entity" in taken
    assert not [name for name in taken if not name.startswith("_") and f"`{name}`" not in page]


@pytest.mark.parametrize("module", MODULES)
def test_every_name_of_a_public_module_is_in_the_reference(module):
    section = API.partition(f"## {module}\n")[2].partition("\n## ")[0]
    missing = [
        name
        for name in importlib.import_module(module).__all__
        if not re.search(rf"\b{name}\b", section)
    ]
    assert not missing


def test_every_environment_variable_is_documented():
    found = {
        name for path in SOURCES for name in ENVIRONMENT.findall(path.read_text(encoding="utf-8"))
    }
    assert {"ZAEL_URL", "AWS_REGION", "TABLE_NAME", "NO_COLOR"} <= found
    page = text_of("reference/environment.md")
    assert not [name for name in sorted(found) if f"`{name}`" not in page]


def test_every_variable_of_the_tests_is_documented():
    texts = [
        path.read_text(encoding="utf-8")
        for folder in ("tests", "benchmarks", "tools", "contract")
        for path in (ROOT / folder).rglob("*.py")
    ]
    used = set(re.findall(r"\bZAEL_[A-Z_]+[A-Z]\b", "\n".join(texts)))
    page = text_of("contributing/testing.md") + text_of("reference/environment.md")
    assert not [name for name in sorted(used) if f"`{name}`" not in page]


def test_every_parameter_and_output_of_the_template_is_documented():
    page = text_of("infra/cloudformation.md")
    names = [parameter.name for parameter in parameters.PARAMETERS]
    names += template.template()["Outputs"]
    assert not [name for name in names if f"`{name}`" not in page]


def test_every_alarm_and_metric_is_documented():
    page = text_of("operations/monitoring.md")
    kind = "AWS::CloudWatch::Alarm"
    alarms = [
        each["Properties"]["AlarmName"]["Fn::Sub"].removeprefix("${AWS::StackName}-")
        for each in aggregator.resources().values()
        if each["Type"] == kind
    ]
    assert len(alarms) >= 5
    assert not [name for name in alarms if f"`my-app-{name}`" not in page]
    described = text_of("operations/usage.md")
    assert not [name for name in report.METRIC_UNITS if f"`{name}`" not in described]


def test_dashboards_and_queries_name_what_the_aggregator_reports():
    page = DOCS / "operations/monitoring.md"
    dashboard = next(json.loads(text) for text in blocks(page, "json") if "widgets" in text)
    metrics = [
        metric
        for widget in dashboard["widgets"]
        for metric in widget["properties"]["metrics"]
        if metric[0] == report.METRICS_NAMESPACE
    ]
    assert len(metrics) >= 4
    assert {metric[1] for metric in metrics} <= report.METRIC_UNITS.keys()
    assert {metric[2] for metric in metrics} == {"Table"}  # the dimension of handler.py
    lines = []
    log = report.Log(output=lines.append)
    log.error("x", error="y", error_type="z")
    log.metrics({"Records": 1}, Table="t")
    fields = {name for line in lines for name in json.loads(line)} | report.METRIC_UNITS.keys()
    queries = "".join(text for text in blocks(page, "text"))
    named = set(
        re.findall(r"(?:by|fields|filter|ispresent\(|sum\(|max\(|,) ?([A-Za-z_]+)\b", queries)
    )
    assert named - {"bin", "count", "ispresent", "max", "sum"} <= fields


def test_every_audit_action_is_documented():
    page = text_of("infra/auditing.md")
    assert not [action for action in AuditAction if f"`{action}`" not in page]


def test_every_key_of_a_manifest_is_documented():
    schema = json.loads(
        resources.files("zae_limiter_ops.manifest").joinpath("schema.json").read_text()
    )

    def keys(node):
        if isinstance(node, dict):
            yield from node.get("properties", ())
            for inner in node.values():
                yield from keys(inner)
        elif isinstance(node, list):
            for inner in node:
                yield from keys(inner)

    page = text_of("reference/manifest.md")
    assert not [key for key in set(keys(schema)) if not re.search(rf"\b{key}\b", page)]


def test_the_schema_of_manifests_is_part_of_the_site(tmp_path):
    site_hooks.on_post_build({"site_dir": str(tmp_path)})
    schema = json.loads((tmp_path / site_hooks.SCHEMA).read_text(encoding="utf-8"))
    assert schema["$id"].endswith(f"/{site_hooks.SCHEMA.as_posix()}")
    assert site_hooks.SCHEMA.as_posix() in text_of("reference/manifest.md")


def test_every_extra_is_documented():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = text_of("getting-started.md")
    assert not [name for name in project["optional-dependencies"] if f"`[{name}]`" not in page]


def test_every_target_of_make_is_documented():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE)
    page = text_of("contributing/development.md")
    assert not [each for each in targets if f"`make {each}`" not in page and each != "help"]


def test_the_build_of_the_site_sees_warnings():
    """With ``--quiet`` MkDocs hides them from ``--strict``, too."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    (build,) = re.findall(r"mkdocs build .*", makefile)
    assert "--strict" in build
    assert "quiet" not in build


def test_pictures_are_what_the_commands_print(capsys):
    assert pictures.stale() == [], "draw them again: make pictures"
    assert (DOCS / "pictures/demo.svg").exists()


def test_figures_beside_other_limiters_are_those_of_the_benchmarks():
    page = peer_tables.PAGE.read_text(encoding="utf-8")
    assert page == peer_tables.page(), "update it: python -m tools.peer_tables"


def test_diagrams_are_of_a_kind_that_mermaid_draws():
    diagrams = [block for page in SITE_PAGES for block in blocks(page, "mermaid")]
    assert len(diagrams) >= 10
    for diagram in diagrams:
        assert diagram.split()[0] in ("flowchart", "sequenceDiagram", "stateDiagram-v2"), diagram


@pytest.mark.parametrize(
    ("url", "address"), [("", "assets"), ("cli/", "../assets"), ("guide/waiting/", "../../assets")]
)
def test_a_page_with_diagrams_loads_their_script_from_the_site(url, address):
    page = SimpleNamespace(url=url, file=SimpleNamespace(src_uri="page.md"))
    without = "<head></head><pre>A --> B</pre>"
    assert site_hooks.on_post_page(without, page=page) == without
    html = f"<head></head>{site_hooks.DIAGRAM}A --> B</pre>"
    drawn = site_hooks.on_post_page(html, page=page)
    assert f'<head><script src="{address}/javascripts/mermaid.min.js"></script></head>' in drawn
