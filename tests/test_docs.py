"""The README and the docs are true: Python runs, commands are known, links lead somewhere, and the site needs nothing.

The Python blocks of a page run in order in one namespace, in a folder that holds the project's results and examples.
Command lines are parsed by the command line's own parsers and go no further.
"""

import ast
import doctest
import html.parser
import importlib
import importlib.machinery
import importlib.util
import re
import shlex
import sys
import time
import types
import urllib.parse
from pathlib import Path

import pytest

import feelgood
from feelgood.agents import Options
from feelgood.bandits import datasets
from feelgood.catalogue import KINDS
from feelgood.checks import check_choice
from feelgood.cli import COMMANDS, home_of
from feelgood.pairs import read_lists, read_numbers
from feelgood.studies import STUDIES

ROOT = Path(__file__).parents[1]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]
FENCE = re.compile(r"^```([a-z]*)\n(.*?)^```", flags=re.MULTILINE | re.DOTALL)


def name_of(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path, *languages: str) -> list[str]:
    return [text for language, text in FENCE.findall(page.read_text()) if language in languages]


@pytest.fixture(params=[True, pytest.param(False, marks=pytest.mark.slow)], ids=["small ensembles", "as written"])
def ensembles(request, monkeypatch):
    """Ensembles have two members, which are trained in a tenth of the time; in the slow tests all."""
    if request.param:
        whole = Options.members.fget
        monkeypatch.setattr(Options, "members", property(lambda options: min(whole(options), 2)))


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python")], ids=name_of)
def test_the_python_blocks_of_a_page_run(page, tmp_path, monkeypatch, ensembles):
    for folder in ("results", "examples"):
        (tmp_path / folder).symlink_to(ROOT / folder)
    monkeypatch.chdir(tmp_path)
    namespace: dict = {}
    for block in blocks(page, "python"):
        exec(compile(block, str(page), "exec"), namespace)


# An example that would take long, or write files, is marked to be skipped.
EXAMPLE = re.compile(r">>> (?!.*doctest: \+SKIP)")
SOURCES = sorted(path for path in (ROOT / "src").rglob("*.py") if EXAMPLE.search(path.read_text()))


def test_examples_have_the_heading_that_the_site_shows_as_code():
    wrong = [name_of(source) for source in SOURCES if re.search(r"^ *Example:$", source.read_text(), re.MULTILINE)]
    assert wrong == []  # under "Example:" they are shown as quotations


@pytest.mark.parametrize("source", SOURCES, ids=name_of)
def test_the_examples_in_docstrings_print_their_output(source, monkeypatch):
    monkeypatch.chdir(ROOT)
    module = ".".join(source.relative_to(ROOT / "src").with_suffix("").parts).removesuffix(".__init__")
    failed, attempted = doctest.testmod(importlib.import_module(module))
    assert attempted > 0
    assert failed == 0


# Packages, and modules without a list of public names, whose functions all have an example.
SHOWN = ("agents", "bandits", "envs", "envs.bsuite", "envs.diagnostic", "envs.external", "linear", "linear.algorithms")
SHOWN += ("linear.mdps", "linear.schemes", "linear.theory", "networks", "objectives", "replay", "samplers")
SHOWN += ("samplers.diagnostics", "statistics", "training")

# The exceptions, and why. The tests run every example, and most of its time is compilation.
UNSHOWN = {
    "envs.external.atari": "needs an extra",
    "samplers.diagnostics.to_arviz": "needs a package that is not a dependency",
    "training.run_batch": "compiles a training loop, which takes two seconds",
    "linear.lsvi_ase_general": "a plan compiles for seconds",
}


def public_functions(place: str) -> dict[str, types.FunctionType]:
    """Functions of a package's list of public names, or all of a module that has none."""
    module = importlib.import_module(f"feelgood.{place}")
    own = [name for name, value in vars(module).items() if getattr(value, "__module__", None) == module.__name__]
    names = getattr(module, "__all__", [name for name in own if not name.startswith("_")])
    found = {f"{place}.{name}": getattr(module, name) for name in names}
    return {name: value for name, value in found.items() if isinstance(value, types.FunctionType)}


def has_example(name: str, function: types.FunctionType) -> bool:
    """Whether its docstring has an example that runs, or one in the docstring of its module or package calls it."""
    if EXAMPLE.search(function.__doc__ or ""):
        return True
    place, _, short_name = f"feelgood.{name}".rpartition(".")
    called = re.compile(rf"^ *(>>>|\.\.\.) (?!.*\+SKIP).*\b{short_name}\(", re.MULTILINE)
    homes = (place, place.rpartition(".")[0], function.__module__)
    return any(called.search(sys.modules[home].__doc__ or "") for home in homes)


def test_every_public_function_has_an_example():
    functions = {name: function for place in SHOWN for name, function in public_functions(place).items()}
    assert len(functions) > 150  # none was overlooked
    assert {name for name, function in functions.items() if not has_example(name, function)} == set(UNSHOWN)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_to_files_of_the_project_lead_somewhere(page):
    text = FENCE.sub("", page.read_text())
    missing = []
    for target, anchor in re.findall(r"\]\((?!https?://)([^)#\s]*)#?([^)\s]*)\)", text):
        there = page.parent / target if target else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            missing.append(f"{target}#{anchor}" if anchor else target)
    assert not missing


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as both the site and code hosts make them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), flags=re.MULTILINE)
    plain = [re.sub(r"\[([^]]*)\]\([^)]*\)|[`*]", r"\1", heading).lower() for heading in headings]
    return {re.sub(r"\s", "-", re.sub(r"[^\w\s-]", "", heading, flags=re.ASCII).strip()) for heading in plain}


def test_the_citation_has_the_version_of_the_package():
    (version,) = re.findall(r"^version: (.+)$", (ROOT / "CITATION.cff").read_text(), flags=re.MULTILINE)
    assert version == feelgood.__version__


# Commands.


def commands(page: Path) -> list[str]:
    """Lines of shell, and code in the text, that call `feelgood`, `make` or a script of ours; comments are cut off."""
    text = page.read_text()
    lines = [line for block in blocks(page, "", "sh") for line in block.replace("\\\n", " ").splitlines()]
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", FENCE.sub("", text))
    # In a sentence, the name of a command alone is a mention.
    lines += [f"{span} --help" if re.fullmatch(r"feelgood \w+", span) else span for span in spans]
    called = (
        r"\s*(?:\w+=\S+ )*(?:\S*/)?(?:feelgood(?= )|make(?= [a-z-]+(?:\s|$))|python(?= (?:examples|benchmarks)/)).*"
    )
    # A line with "…" or a word such as COMMAND stands for many commands.
    return [line for line in lines if re.fullmatch(called, line) and not re.search(r"…|\b(COMMAND|STUDY)\b", line)]


def words_of(line: str) -> list[str]:
    words = shlex.split(line, comments=True)
    while "=" in words[0]:  # settings of the environment
        words = words[1:]
    end = next((i for i, word in enumerate(words) if word in (">", "|", "&&")), None)
    words = words[:end]
    return [words[0].rpartition("/")[2], *words[1:]]


def check_command(line: str) -> None:
    """Requires that a command line is valid, without running it.

    Raises:
      ValueError: if it would not.
    """
    program, *words = words_of(line)
    if program == "make":
        check_choice("target", words[0], re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
        return
    if program == "python":
        check_choice("script", words[0], [name_of(file) for file in ROOT.glob("*/*.py")])
        return
    command, *rest = words
    if command in ("--help", "--version"):
        return
    check_choice("command", command, COMMANDS)
    if rest == ["--help"]:
        return
    if command == "sweep":
        command, rest = "run", ["sweep", *rest]
    if command == "run":
        check_choice("study", rest[0], STUDIES)
        check_study(rest[0], rest[1:])
    elif command == "train":
        check_training(rest)
    elif command == "resume":
        if len(rest) != 1 or rest[0].startswith("-"):
            raise ValueError(f"resume takes one folder, got {rest}")
    else:
        check_rest(command, rest)


def by_tyro(kind, words):
    import tyro

    try:
        return tyro.cli(kind, args=words)
    except SystemExit as end:
        if end.code:
            raise ValueError(f"{kind.__name__} does not understand {shlex.join(words)}") from None
        return None  # its help


def check_study(name: str, words: list[str]) -> None:
    from feelgood.agents import ZOO
    from feelgood.cli.run import study_options
    from feelgood.studies import cells
    from feelgood.studies.sweep import defaults, is_external

    study = by_tyro(study_options(name), words)
    if name == "sweep" and study is not None:
        if is_external(study.environment):
            defaults(study.environment, study.agent, study.num_steps, study.options)
        else:
            cells.environment_by_name(study.environment)
        for hyper in read_lists("grid", study.grid):
            check_choice("grid", hyper, ZOO[study.agent].hyper)
    if name == "atari" and study is not None:
        for hyper in [*read_numbers("hyper", study.hyper), *read_lists("vary", study.vary)]:
            for agent in study.agents:
                check_choice("hyper", hyper, ZOO[agent].hyper)


def check_training(words: list[str]) -> None:
    from feelgood import api
    from feelgood.cli.train import TrainOptions

    options = by_tyro(TrainOptions, words)
    if options is not None:
        for env, agent in options.pairs():
            hyper, chosen, config = options.hyper_parameters(), options.agent_options(), options.settings()
            api.prepare(agent, env, hyper=hyper, options=chosen, config=config)


def check_rest(command: str, words: list[str]) -> None:
    """Commands with a parser of their own, and their further checks."""
    from feelgood.cli.completion import SHELLS
    from feelgood.cli.parsing import PARSERS
    from feelgood.report import kinds as charts

    home_of(command)  # makes its parser
    try:
        chosen = PARSERS[command].parse_args(words)
    except SystemExit:  # its help
        return
    if command == "list" and chosen.kind is not None:
        check_choice("kind", chosen.kind, KINDS)
    if command == "completion":
        check_choice("shell", chosen.shell, SHELLS)
    for folder in [*getattr(chosen, "folders", []), getattr(chosen, "folder", None)]:
        if folder is not None and folder.parts[0] == "results" and not (ROOT / folder).is_dir():
            raise ValueError(f"there is no folder {folder}")
    if command == "plot":
        there = ROOT / chosen.folders[0]
        kinds = charts.available(charts.tables_of(there)) if there.is_dir() and chosen.kind else charts.MAKERS
        for kind in chosen.kind:
            check_choice("kind", kind, kinds)


@pytest.fixture
def extras(monkeypatch):
    """Extras count as installed; nothing of them is used."""
    monkeypatch.setattr(datasets, "is_installed", lambda name: True)
    for name in ("ray", "tensorboardX", "wandb"):
        if importlib.util.find_spec(name) is None:
            module = types.ModuleType(name)
            module.__spec__ = importlib.machinery.ModuleSpec(name, None)
            monkeypatch.setitem(sys.modules, name, module)


@pytest.mark.parametrize("page", [page for page in PAGES if commands(page)], ids=name_of)
def test_the_commands_of_a_page_are_understood(page, extras):
    for line in commands(page):
        try:
            check_command(line)
        except ValueError as error:
            pytest.fail(f"{name_of(page)}: {line}: {error}")


def test_commands_are_found_in_shell_and_in_text(tmp_path):
    page = tmp_path / "page.md"
    page.write_text(
        "Call `feelgood list` or `feelgood run frontier --agents …`; `feelgood.train` is Python, `make it` is not.\n\n"
        "```sh\nA=1 .venv/bin/feelgood run nchain \\\n  --lengths 25  # a comment\nls\n```\n\n"
        "```\nmake demo    # a target\nfeelgood plot x\n```\n\n```python\nfeelgood = 1\n```\n"
    )
    found = [words_of(line) for line in commands(page)]
    assert found == [
        ["feelgood", "run", "nchain", "--lengths", "25"],
        ["make", "demo"],
        ["feelgood", "plot", "x"],
        ["feelgood", "list", "--help"],
        ["make", "it"],
    ]


@pytest.mark.parametrize(
    "line",
    [
        "feelgood fly",
        "feelgood run nowhere",
        "feelgood run nchain --preset tiny",
        "feelgood run nchain --agents dqnn",
        "feelgood run nchain --no-such-option 3",
        "feelgood run regret --mdps nowhere",
        "feelgood sweep --agent dqn --grid friction=1,2",
        "feelgood sweep --environment nowhere",
        "feelgood run atari --games chess",
        "feelgood run atari --preset frictions --hyper frictoin=1",
        "feelgood train --env CartPole-v1 --agent dqnn",
        "feelgood train --env CartPole-v1 --hyper frictoin=1",
        "feelgood train --env CartPole-v1 --config batchsize=1",
        "feelgood train --env CartPole-v1 --agent ensemble_dqn --options critic=quantile",
        "feelgood train --env NoSuchTask-v1",
        "feelgood train",
        "feelgood plot results/nchain --kind pie",
        "feelgood plot results/nowhere",
        "feelgood plot results/nchain --colour red",
        "feelgood compare",
        "feelgood compare results/nchain --colour red",
        "feelgood list birds",
        "feelgood completion tcsh",
        "feelgood resume",
        "feelgood evaluate runs/cartpole --episodes 3",
        "make tea",
        "python benchmarks/nothing.py",
    ],
)
def test_a_command_that_would_be_refused_is_found_out(line):
    with pytest.raises(ValueError):  # noqa: PT011 (each has a sentence of its own)
        check_command(line)


def bare_options(page: Path) -> list[str]:
    """Code in the text that begins with an option, such as `--num-seeds 3`."""
    spans = re.findall(r"(?<!`)`([^`\n]+)`(?!`)", FENCE.sub("", page.read_text()))
    return [span for span in spans if span.startswith("--")]


def options_named(lines: list[str]) -> set[str]:
    """Options of the commands and scripts in these lines, and those of `feelgood train`."""
    from feelgood.cli.completion import flags_of, study_flags

    found = set(flags_of("train"))
    for program, first, *rest in map(words_of, lines):
        if program == "python":
            found |= set(re.findall(r'"(--[a-z-]+)"', (ROOT / first).read_text()))
        elif program == "feelgood" and first in COMMANDS:
            study = {"run": "".join(rest[:1]), "sweep": "sweep"}.get(first)
            found |= set(study_flags(study) if study in STUDIES else flags_of(first))
    return found


def check_options(span: str, lines: list[str]) -> None:
    """Requires that the options of a span belong to a command in `lines`, and that their settings exist.

    Raises:
      ValueError: if not.
    """
    import dataclasses

    from feelgood.agents import ZOO, Options
    from feelgood.training import ExternalConfig, FunctionalConfig

    fields = lambda *records: {field.name for record in records for field in dataclasses.fields(record)}
    settings = {
        "--config": fields(FunctionalConfig, ExternalConfig),
        "--options": fields(Options),
        "--hyper": {name for spec in ZOO.values() for name in spec.hyper},
    }
    known, option = sorted(options_named(lines)), ""
    for word in shlex.split(span):
        if word.startswith("--"):
            # A switch that is on has a second form that turns it off.
            option = re.sub("^--no-", "--", word)
            check_choice("option", word if word in known else option, known)
        elif option in settings:
            check_choice(option, word.partition("=")[0], sorted(settings[option]))


@pytest.mark.parametrize("page", [page for page in PAGES if bare_options(page)], ids=name_of)
def test_the_options_in_the_text_of_a_page_belong_to_its_commands(page):
    for span in bare_options(page):
        try:
            check_options(span, commands(page))
        except ValueError as error:
            pytest.fail(f"{name_of(page)}: {span}: {error}")


@pytest.mark.parametrize(
    "span", ["--num-chains 5", "--num-groups", "--config chains=5", "--hyper tau=1", "--no-seeds-3"]
)
def test_an_option_that_no_command_of_the_page_has_is_found_out(span):
    with pytest.raises(ValueError):  # noqa: PT011 (each has a sentence of its own)
        check_options(span, ["feelgood run atari --preset paper", "feelgood train --help", "make demo"])


def test_every_command_and_study_is_documented():
    lines = [words_of(line) for page in PAGES for line in commands(page)]
    called = {words[1] for words in lines if words[0] == "feelgood"}
    studied = {words[2] for words in lines if words[:2] == ["feelgood", "run"]} | ({"sweep"} & called)
    assert set(COMMANDS) - called == set()
    assert set(STUDIES) - studied == set()


# The site.


def test_every_agent_has_its_command_on_the_page_of_agents():
    from feelgood.agents import ZOO

    page = ROOT / "docs" / "agents.md"
    told = {word for line in commands(page) for word in words_of(line)}
    assert set(ZOO) <= told


def test_every_public_module_is_in_the_reference():
    """Modules below the command line and the studies with public names, except those that packages re-export."""
    documented = {name for page in DOCS for name in re.findall(r"^::: (\S+)", page.read_text(), re.MULTILINE)}
    names = ["samplers", "agents", "envs", "envs.external", "replay", "objectives", "networks", "training", "linear"]
    names += [
        "api",
        "runs.store",
        "statistics",
        "samplers.diagnostics",
        "training.policy",
        "training.policy_files",
        "envs.diagnostic",
    ]
    names += [f"linear.{path.stem}" for path in (ROOT / "src/feelgood/linear").glob("*.py") if _is_public(path)]
    assert {f"feelgood.{name}" for name in names} <= documented


def _is_public(path: Path) -> bool:
    """Whether `feelgood.linear` re-exports a module as such."""
    tree = ast.parse((path.parent / "__init__.py").read_text())
    imported = [node for node in tree.body if isinstance(node, ast.ImportFrom) and node.module == "feelgood.linear"]
    return path.stem in {alias.name for node in imported for alias in node.names}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site as `make docs` builds it, strictly, so that a warning fails; with the log."""
    for package in ("mkdocs", "material", "mkdocstrings"):
        pytest.importorskip(package, reason="the extra docs is not installed (make docs)")
    from mkdocs.commands.build import build
    from mkdocs.config import load_config

    folder = tmp_path_factory.mktemp("site")
    build(load_config(str(ROOT / "mkdocs.yml"), site_dir=str(folder), strict=True))
    return folder


class _Addresses(html.parser.HTMLParser):
    """The addresses that a page loads by itself, and those that it links to."""

    def __init__(self, text: str):
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []
        self.policy = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        if tag == "a":
            self.linked.append(found.get("href") or "")
        elif tag == "meta" and found.get("http-equiv") == "Content-Security-Policy":
            self.policy = found["content"]
        elif tag != "meta" and found.get("rel") != "canonical":
            self.loaded += [found[name] for name in ("src", "href", "srcset", "data", "poster") if found.get(name)]


def _is_outside(address: str) -> bool:
    return bool(re.match(r"([a-z]+:)?//", address))


def test_the_site_loads_nothing_from_elsewhere(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > len(DOCS)
    for page in pages:
        found = _Addresses(page.read_text())
        assert found.loaded
        assert not [address for address in found.loaded if _is_outside(address)], page
        # Nor can it: scripts of the theme hold outside addresses, for features that no page uses.
        assert "'self'" in found.policy
        assert "http" not in found.policy
    for sheet in site.rglob("*.css"):
        assert not re.findall(r"(?:url\(|@import)\s*[\"']?(?:https?:)?//", sheet.read_text()), sheet


def test_links_within_the_site_lead_somewhere(site):
    for page in site.rglob("*.html"):
        if page.name == "404.html":
            continue
        for address in _Addresses(page.read_text()).linked:
            path = urllib.parse.unquote(urllib.parse.urlsplit(address).path)
            if not _is_outside(address) and not address.startswith("mailto:") and path:
                assert (page.parent / path).exists(), f"{page}: {address}"


def test_search_works_on_pages_opened_from_files(site, browser):
    browser.get((site / "how-to" / "sweep.html").as_uri())
    browser.find_element("css selector", "input.md-search__input").send_keys("suggest_step_size")
    deadline = time.time() + 600
    while not (found := browser.find_elements("css selector", "a.md-search-result__link")) and time.time() < deadline:
        time.sleep(0.05)
    assert any(link.get_attribute("href").startswith((site / "samplers.html").as_uri()) for link in found)


def test_the_reference_of_the_site_has_every_public_name(site):
    from feelgood import api
    from feelgood.envs import external
    from feelgood.runs import store

    told = "".join(page.read_text() for page in (site / "reference").glob("*.html"))
    known = set(re.findall(r'id="(feelgood[\w.]*)"', told))
    packages = [getattr(feelgood, name) for name in feelgood.__all__]
    modules = [api, external, store, *(package for package in packages if hasattr(package, "__all__"))]
    missing = []
    for module in modules:
        for name in module.__all__:
            # A function that has its module's name is described there.
            home = getattr(getattr(module, name), "__module__", module.__name__)
            if not {f"{module.__name__}.{name}", f"{home}.{name}"} & known:
                missing.append(f"{module.__name__}.{name}")
    assert not missing
    assert {"feelgood.training.policy.Policy", "feelgood.training.policy_files.load_policy"} <= known
    face = {name for name in feelgood.__all__ if not isinstance(getattr(feelgood, name), types.ModuleType)}
    assert face <= {name.rpartition(".")[2] for name in known}
