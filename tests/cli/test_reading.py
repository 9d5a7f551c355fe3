"""Commands that read results, plot, compare and report, and the one that completes words."""

import hashlib
import json
import shutil
import subprocess

import pytest

from feelgood.catalogue import KINDS
from feelgood.cli import COMMANDS, main
from feelgood.cli.completion import SHELLS, flags_of, study_flags
from feelgood.cli.plot import plot
from feelgood.studies import STUDIES


def refused(capsys, *arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(map(str, arguments)))
    assert caught.value.code == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("feelgood: ")
    assert captured.err.count("\n") == 1
    return captured.err


def printed(capsys, *arguments):
    main(list(map(str, arguments)))
    return capsys.readouterr().out


def contents(folder):
    return {file: hashlib.sha256(file.read_bytes()).hexdigest() for file in sorted(folder.rglob("*")) if file.is_file()}


def test_plot_draws_the_requested_figures_into_a_folder(capsys, studies, tmp_path):
    before = contents(studies["nchain"])
    out = printed(capsys, "plot", studies["nchain"], "--kind", "lengths", "sweep", "-o", tmp_path / "figures")
    paths = [tmp_path / "figures" / f"{kind}.{ending}" for kind in ("lengths", "sweep") for ending in ("png", "pdf")]
    assert out.splitlines() == [f"wrote {path}" for path in paths]
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert paths[1].read_bytes().startswith(b"%PDF")
    assert contents(studies["nchain"]) == before


def test_plot_writes_next_to_the_tables_by_default(capsys, studies, tmp_path):
    shutil.copytree(studies["atari"], tmp_path / "run")
    printed(capsys, "plot", tmp_path / "run", "--kind", "curves")
    assert {file.name for file in (tmp_path / "run").iterdir()} == {"curves.parquet", "curves.png", "curves.pdf"}


def test_plot_writes_all_figures_for_a_reader_that_leaves_early(studies, tmp_path, monkeypatch):
    def gone(text):
        raise BrokenPipeError

    monkeypatch.setattr("feelgood.cli.plot.print", gone, raising=False)
    with pytest.raises(BrokenPipeError):
        plot([str(studies["atari"]), "--kind", "curves", "profiles", "-o", str(tmp_path)])
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["curves.pdf", "curves.png", "profiles.pdf", "profiles.png"]


@pytest.mark.parametrize(("ending", "start"), [("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_plot_writes_one_figure_in_the_format_of_its_file(capsys, studies, tmp_path, ending, start):
    file = tmp_path / "new" / f"figure.{ending}"
    assert printed(capsys, "plot", studies["nchain"], "--kind", "lengths", "-o", file) == f"wrote {file}\n"
    assert file.read_bytes().startswith(start)


def test_plot_prints_json_and_draws_only_the_requested_agents(capsys, studies):
    charts = json.loads(printed(capsys, "plot", studies["nchain"], "--json", "--kind", "curves", "--agents", "dqn"))
    assert [chart["kind"] for chart in charts] == ["curves"]
    assert [[series["name"] for series in panel["series"]] for panel in charts[0]["panels"]] == [["DQN"], ["DQN"]]


def test_plot_skips_impossible_figures_unless_requested(capsys, studies):
    kinds = [chart["kind"] for chart in json.loads(printed(capsys, "plot", studies["atari"], "--json"))]
    assert kinds == ["curves", "profiles"]
    said = refused(capsys, "plot", studies["atari"], "--json", "--kind", "curves", "aggregate")
    assert said.startswith("feelgood: a mean over tasks needs scores on one scale")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--kind", "curvs"], "did you mean 'curves'?"),
        (["--agents", "dnq", "-o", "x"], "agents must be one of"),
        (["--agents", "dqn"], "--agents dqn needs --output; the study's own figures show all"),
        (["-o", "x.gif"], "output must be a folder or a file ending in .png, .pdf, .svg, got 'x.gif'"),
        (["-o", "x.png"], "one file holds one figure: choose one --kind of 'lengths', 'curves'"),
        (["-o", "x", "--json"], "--json prints and --output writes"),
    ],
)
def test_plot_refuses_in_a_sentence(capsys, studies, arguments, message):
    assert message in refused(capsys, "plot", studies["nchain"], *arguments)


@pytest.mark.parametrize("command", ["plot", "report"])
def test_a_folder_is_not_drawn_twice(capsys, studies, command, tmp_path):
    folder, again = studies["nchain"], studies["nchain"] / ".." / "nchain"
    said = refused(capsys, command, folder, again, "-o", tmp_path / "x.html" if command == "report" else tmp_path)
    assert said == f"feelgood: folders must be different, got {folder} twice\n"


def test_compare_prints_a_table_a_sentence_and_its_weaknesses(capsys, studies):
    out = printed(capsys, "compare", f"{studies['atari']}:iqn", f"{studies['atari']}:fg_ulmcdqn")
    lines = out.splitlines()
    assert lines[4].split() == [
        "task",
        "runs",
        "A",
        "B",
        "A",
        "−",
        "B",
        "95%",
        "interval",
        "P(A",
        "better)",
        "95%",
        "interval",
    ]
    assert [line.split()[0] for line in lines[5:8]] == ["Alien", "Pong", "all"]
    assert len({len(line) for line in lines[4:8]}) == 1  # columns are aligned
    assert lines[9].startswith("Of 2 tasks, fg_ulmcdqn is better on 2")
    assert lines[10] == "Note: with 3 runs a task an interval is narrower than it should be."


def test_compare_prints_json(capsys, studies):
    out = printed(capsys, "compare", f"{studies['atari']}:iqn", f"{studies['atari']}:fg_ulmcdqn", "--json")
    found = json.loads(out)
    assert [row["task"] for row in found["rows"]] == ["Alien", "Pong", "all tasks"]
    assert found["rows"][2]["difference"] is None  # games have different units
    assert found["rows"][0]["p_better"] == 0
    assert found["sentence"].startswith("Of 2 tasks")


def test_compare_reads_a_file_and_keeps_common_times(capsys, studies):
    file = studies["atari"] / "curves.parquet"
    out = printed(capsys, "compare", f"{studies['atari']}:iqn", f"{file}:fg_ulmcdqn", "--same-times")
    assert out.splitlines()[:2] == [f"A: {studies['atari']}:iqn", f"B: {file}:fg_ulmcdqn"]
    assert "Of 2 tasks" in out


def test_compare_names_the_agents_of_two_folders(capsys, studies):
    out = printed(capsys, "compare", studies["atari"], studies["atari"])
    assert [line.split()[0] for line in out.splitlines()[5:11]] == ["iqn"] * 3 + ["fg_ulmcdqn"] * 3


def test_report_writes_one_page(capsys, studies, tmp_path):
    file = tmp_path / "deep" / "page.html"
    out = printed(capsys, "report", studies["atari"], "-o", file, "--title", "Games")
    assert out.startswith(f"wrote {file} (0.0")
    assert "<title>Games · feelgood</title>" in file.read_text()
    assert list(file.parent.iterdir()) == [file]


def test_report_refuses_to_overwrite_anything_but_a_page(capsys, studies, tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    assert "output must end in .html, got" in refused(capsys, "report", studies["atari"], "-o", notes)
    assert notes.read_text() == "mine"


# Completion ----------------------------------------------------------------------------------------------------------


def completed(script, *words):
    """The words that bash offers to complete the last word."""
    code = f"source {script}; COMP_WORDS=({' '.join(map(repr, words))}); COMP_CWORD={len(words) - 1}; _feelgood; "
    code += 'printf "%s\\n" "${COMPREPLY[@]}"'
    return subprocess.run(["bash", "-c", code], capture_output=True, text=True, check=True, timeout=600).stdout.split()


def test_bash_completes_commands_studies_options_and_kinds(capsys, tmp_path):
    script = tmp_path / "feelgood.bash"
    script.write_text(printed(capsys, "completion", "bash"))
    assert completed(script, "feelgood", "rep") == ["report"]
    assert set(completed(script, "feelgood", "")) == {*COMMANDS, "--help", "--version"}
    assert set(completed(script, "feelgood", "run", "")) == {*STUDIES, "--help"}
    assert completed(script, "feelgood", "run", "nchain", "--num-s") == ["--num-seeds", "--num-steps"]
    assert completed(script, "feelgood", "list", "ag") == ["agents"]
    assert completed(script, "feelgood", "plot", "runs", "--k") == ["--kind"]
    assert completed(script, "feelgood", "completion", "") == [*SHELLS, "--help"]


def test_zsh_runs_the_script_of_bash(capsys):
    start, script = printed(capsys, "completion", "zsh").split("# bash", 1)
    assert start == "#compdef feelgood\nautoload -U +X bashcompinit && bashcompinit\n"
    assert f"# bash{script}" == printed(capsys, "completion", "bash")


def test_fish_holds_the_same_words(capsys, tmp_path):
    script = printed(capsys, "completion", "fish")
    for name, command in COMMANDS.items():
        assert f"-a {name} -d '{command.summary.replace(chr(39), '’').replace(':', ' -')}'" in script
    for words in (STUDIES, KINDS, SHELLS):
        assert all(f"-f -a {word}\n" in script for word in words)
    for flag in {*flags_of("plot"), *study_flags("regret")}:
        assert f"-l {flag.removeprefix('--')}\n" in script
    if shutil.which("fish"):
        (tmp_path / "script").write_text(script)
        subprocess.run(["fish", "-n", str(tmp_path / "script")], check=True, timeout=600)


def test_an_unknown_shell_is_refused(capsys):
    assert "shell must be one of 'bash', 'zsh', 'fish', got 'bsah'; did you mean 'bash'?" in refused(
        capsys, "completion", "bsah"
    )
