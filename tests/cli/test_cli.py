"""The command line: exit codes, messages, and no JAX before there is work for it."""

import json
import math
import re
import resource
import shlex
import subprocess
import sys
from importlib import metadata
from types import SimpleNamespace

import pytest
import tyro

import feelgood
from feelgood import cli
from feelgood.catalogue import KINDS
from feelgood.cli import completion, doctor, main, run, train
from feelgood.cli.memory import too_large
from feelgood.runs import store
from feelgood.studies import STUDIES
from feelgood.studies.nchain import study as nchain


def call(*arguments):
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0), (["-h"], 0)])
def test_without_a_command_the_commands_are_listed(capsys, arguments, code):
    assert call(*arguments) == code
    out = capsys.readouterr().out
    assert out.startswith("usage: feelgood COMMAND")
    assert all(f"\n  {name} " in out and command.example in out for name, command in cli.COMMANDS.items())


@pytest.mark.parametrize("command", cli.COMMANDS)
def test_the_help_of_every_command_ends_with_an_example_of_it(capsys, command):
    assert call(command, "--help") == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith(f"example: feelgood {command}")


def test_the_version_is_the_installed_one(capsys):
    main(["--version"])
    assert capsys.readouterr().out == f"feelgood {metadata.version('feelgood')}\n"


@pytest.mark.parametrize(("arguments", "code"), [([], 2), (["--help"], 0)])
def test_without_a_study_the_studies_are_listed(capsys, arguments, code):
    assert call("run", *arguments) == code
    out = capsys.readouterr().out
    assert all(name in out and study.summary in out for name, study in STUDIES.items())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["rnu"],
            f"feelgood: command must be one of {', '.join(map(repr, cli.COMMANDS))}, got 'rnu'; did you mean 'run'?\n",
        ),
        (["run", "nchian"], "got 'nchian'; did you mean 'nchain'?\n"),
        (["list", "agnets"], "got 'agnets'; did you mean 'agents'?\n"),
        (["list", "agents", "--jsn"], "feelgood: unrecognized arguments: --jsn\n"),
        (["doctor", "--js"], "feelgood: unrecognized arguments: --js\n"),
        (["resume"], "feelgood: the following arguments are required: folder\n"),
    ],
)
def test_a_wrong_name_gives_one_line_with_the_nearest_right_one_and_code_two(capsys, arguments, message):
    assert call(*arguments) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.endswith(message)
    assert captured.err.count("\n") == 1


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--lengths", "3"], "lengths must be a whole number of at least 4, got 3"),
        (["--agents", "dnq"], "did you mean 'dqn'?"),
        (["--num-steps", "-1000"], "num_steps must be a whole number of at least 1000, got -1000"),
        (["--options", "from=paper"], "got 'from'; did you mean 'form'?"),
        (["--num-seed", "3", "4"], "num-seed"),
    ],
)
def test_wrong_options_give_code_two_and_write_nothing(capsys, tmp_path, options, message):
    assert call("run", "nchain", *options, "--output", str(tmp_path / "new")) == 2
    captured = capsys.readouterr()
    words = " ".join((captured.out + captured.err).replace("│", " ").split())
    assert message in words
    assert not (tmp_path / "new").exists()


def boxes_of_help(capsys, *command):
    """The words of each box of the help, by its title."""
    assert call(*command, "--help") == 0
    _, *parts = re.split(r"^ (\S.*?) +\n -+ *$", capsys.readouterr().out, flags=re.MULTILINE)
    return {title: box.replace(",", " ").split() for title, box in zip(parts[::2], parts[1::2], strict=True)}


def test_the_options_of_a_study_are_listed_with_their_meaning(capsys):
    boxes = boxes_of_help(capsys, "run", "nchain")
    assert [*boxes] == ["options", "tuning options", "agent options", "engine options"]
    everyday = " ".join(boxes["options"])
    assert "--num-seeds INT Number of fresh seeds for the results (default: from the preset). --seeds" in everyday
    assert "(default: quick)" in everyday
    assert not any(word in everyday for word in ("(default: )", "None", "--engine"))


@pytest.mark.parametrize("command", [("train",), ("sweep",), *(("run", name) for name in STUDIES)], ids=" ".join)
def test_every_option_is_in_one_box_and_everyday_options_come_first(capsys, command):
    kind = train.TrainOptions if command == ("train",) else run.study_options(command[-1])
    boxes = boxes_of_help(capsys, *command)
    shown = [word for words in boxes.values() for word in words if word in completion._fields(kind)]
    assert {*shown} == {*completion._fields(kind)}
    assert next(iter(boxes)) == "options"
    assert {"--output", "--num-seeds"} & {*shown} <= {*boxes["options"]}
    assert [title for title, words in boxes.items() if "--ray-address" in words] in ([], [[*boxes][-1]])


def test_the_help_of_an_option_breaks_lines_only_where_the_terminal_ends(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "600")
    assert call("run", "nchain", "--help") == 0
    (line,) = [line for line in capsys.readouterr().out.splitlines() if "quick: three agents" in line]
    assert "with their default hyper-parameters" in line  # on the next line of the source


@pytest.mark.parametrize("name", STUDIES)
def test_the_help_of_a_study_shows_an_example_that_its_options_accept(capsys, name):
    assert call("run", name, "--help") == 0
    example = f"feelgood run {name} {STUDIES[name].example}"
    assert f"example: {example}" in " ".join(capsys.readouterr().out.split())
    assert tyro.cli(run.study_options(name), args=shlex.split(example)[3:]) != run.study_options(name)()


def run_as(monkeypatch, study):
    """The command with a stand-in for the study, and without touching JAX's settings."""
    import jax

    monkeypatch.setattr(nchain, "run", study)
    monkeypatch.setattr(jax.config, "update", lambda *_: None)


def test_a_keyboard_interrupt_prints_how_to_continue_and_exits_with_130(capsys, monkeypatch):
    def study(options):
        raise KeyboardInterrupt

    run_as(monkeypatch, study)
    assert call("run", "nchain", "--num-seeds", "3") == 130
    assert capsys.readouterr().err == "\nstopped; to continue: feelgood run nchain --num-seeds 3\n"


def test_a_study_that_refuses_gives_one_line_and_code_two(capsys, tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"label": "other"}))
    import jax

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(jax.config, "update", lambda *_: None)
        assert call("run", "nchain", "--output", str(tmp_path)) == 2
    expected = f"feelgood: output {tmp_path} holds another study; choose another folder or remove it\n"
    assert capsys.readouterr().err == expected


GPU = SimpleNamespace(
    device_kind="Fast GPU", memory_stats=lambda: {"bytes_limit": 80 * 10**9, "bytes_in_use": 15 * 10**8}
)
CPU = SimpleNamespace(device_kind="cpu", memory_stats=lambda: None)
NUMPY = "Unable to allocate 7.50 GiB for an array with shape (1,) and data type float64"
SEEDS = "--seeds-per-task, --num-seeds or --num-processes"


@pytest.mark.parametrize(
    ("device", "error", "sentence"),
    [
        (CPU, MemoryError(NUMPY), f"out of memory: 8.1 GB were asked for, and this machine has RAM; lower {SEEDS}"),
        (GPU, MemoryError(NUMPY), f"out of memory: 8.1 GB were asked for, and this machine has RAM; lower {SEEDS}"),
        (
            GPU,
            RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 48.00GiB."),
            "out of memory: 51.5 GB were asked for, and the device (Fast GPU) has 80.0 GB of memory, 1.5 GB of it in "
            f"use; lower {SEEDS}",
        ),
        (
            CPU,
            RuntimeError("INTERNAL: Error dispatching computation: Out of memory allocating 429600000800 bytes."),
            f"out of memory: 429.6 GB were asked for, and this machine has RAM; lower {SEEDS}",
        ),
        (
            CPU,
            RuntimeError("RESOURCE_EXHAUSTED: no"),
            f"out of memory (RESOURCE_EXHAUSTED: no), and this machine has RAM; lower {SEEDS}",
        ),
        (CPU, OverflowError("int too large"), f"a number is too large (int too large); lower {SEEDS}"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_a_lack_of_memory_gives_one_line_and_code_two(capsys, monkeypatch, device, error, sentence):
    import jax

    def study(options):
        raise error

    run_as(monkeypatch, study)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert call("run", "nchain") == 2
    said = capsys.readouterr().err
    size = r"this machine has [\d,.]+ GB of RAM(, [\d,.]+ GB of it free)?;"
    assert re.sub(size, "this machine has RAM;", said) == f"feelgood: {sentence}\n"


@pytest.mark.parametrize(
    ("command", "settings"),
    [
        (["train"], "--num-envs, --hidden or --config (capacity, batch_size)"),
        (["run", "atari"], "--num-processes or --config (capacity, batch_size)"),
        (["run", "samplers"], "--num-chains"),
        (["sweep", "--agent", "dqn"], SEEDS),
        (["resume", "runs/x"], "the number of seeds, environments or episodes, capacity, batch_size or the widths of"),
    ],
    ids=" ".join,
)
def test_too_little_memory_names_the_settings_of_the_command(command, settings):
    assert f"; lower {settings}" in too_large(MemoryError("no"), command)


def test_an_unexpected_error_is_not_hidden(monkeypatch):
    def study(options):
        raise RuntimeError("broken")

    run_as(monkeypatch, study)
    with pytest.raises(RuntimeError, match="broken"):
        main(["run", "nchain"])


def test_options_reach_the_study_and_paths_are_printed(capsys, monkeypatch, tmp_path):
    seen = []

    def study(options):
        seen.append(options)
        return [tmp_path / "summary.csv"]

    run_as(monkeypatch, study)
    main(["run", "nchain", "--lengths", "5", "7", "--agents", "dqn", "--output", str(tmp_path)])
    assert seen == [nchain.NChainStudy(lengths=(5, 7), agents=("dqn",), output=tmp_path)]
    assert capsys.readouterr().out == f"wrote {tmp_path / 'summary.csv'}\n"


def test_the_summary_of_list_names_every_kind():
    *kinds, last = KINDS
    assert f"list {', '.join(kinds)} and {last} with" in cli.COMMANDS["list"].summary


@pytest.mark.parametrize("arguments", [["--help"], ["run", "atari", "--help"]], ids=" ".join)
def test_help_comes_within_half_a_second(arguments):
    """Processor time, because other work on the machine changes it least; the best of up to six measurements."""
    seconds = [math.inf]
    while min(seconds) >= 0.5 and len(seconds) <= 6:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-m", "feelgood", *arguments], capture_output=True, check=True, timeout=600)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
    assert min(seconds) < 0.5


def test_a_reader_that_leaves_early_is_no_error():
    words = f"{shlex.quote(sys.executable)} -m feelgood list studies --json | head -c 1; exit ${{PIPESTATUS[0]}}"
    done = subprocess.run(["bash", "-c", words], capture_output=True, text=True, timeout=600)
    assert done.stdout == "{"
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # 1 where the reader was gone before the last word


@pytest.mark.parametrize("words", ["--help", "--version", "list studies"])
def test_a_reader_that_is_gone_is_no_error(words):
    command = f"sleep 0.2; {shlex.quote(sys.executable)} -u -m feelgood {words}"
    done = subprocess.run(["bash", "-c", f"({command}) | true"], capture_output=True, text=True, timeout=600)
    assert done.stderr == ""


WITHOUT_JAX = [
    ["--version"],
    ["run", "x"],
    ["list", "studies"],
    ["resume", "nowhere"],
    ["plot", "x", "-o", "y.gif"],
    ["compare", "a"],
    ["report", "a", "-o", "b.txt"],
    ["completion", "bash"],
]
HELP = [["--help"], ["train", "--help"], *([name, "--help"] for name in ("run", "doctor", "plot", "sweep"))]
HELP += [["run", name, "--help"] for name in STUDIES]


@pytest.mark.parametrize(
    ("calls", "unwanted"),
    [(HELP, {"jax", "matplotlib", "numpy"}), (WITHOUT_JAX, {"jax", "matplotlib"})],
    ids=["help", "refusals"],
)
def test_help_and_refusals_load_no_heavy_package(calls, unwanted):
    code = f"""
import sys
from feelgood.cli import main
for call in {calls!r}:
    try:
        main(call)
    except SystemExit:
        pass
    loaded = {unwanted!r} & sys.modules.keys()
    assert not loaded, (call, loaded)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", STUDIES)
def test_the_options_of_every_study_come_back_from_its_manifest_as_they_were(tmp_path, name):
    options = tyro.cli(run.study_options(name), args=shlex.split(STUDIES[name].example))
    with store.recorded(tmp_path, name, options):
        pass
    restored = run.restored(run.study_options(name), store.read_study(tmp_path)["spec"])
    assert restored == options
    assert {type(value) for value in vars(restored).values()} == {type(value) for value in vars(options).values()}


def stopped(folder, **options):
    """A folder whose study was stopped."""
    spec = nchain.NChainStudy(output=folder, **options)
    with pytest.raises(KeyboardInterrupt), store.recorded(folder, "nchain", spec):
        raise KeyboardInterrupt
    return spec


def test_a_finished_study_is_not_run_again(capsys, monkeypatch, tmp_path):
    words = ["run", "nchain", "--lengths", "5", "--agents", "dqn", "--output", str(tmp_path)]
    spec = nchain.NChainStudy(lengths=(5,), agents=("dqn",), output=tmp_path)
    with store.recorded(tmp_path, "nchain", spec):
        (tmp_path / "summary.csv").write_text("score\n1\n")
    ran = []
    monkeypatch.setattr(run, "set_up_jax", lambda shares: None)
    monkeypatch.setattr(nchain, "run", lambda options: ran.append(options) or [])
    main(words)
    said = f"nchain in {tmp_path} is finished already; to run it again, choose another folder or remove it\n"
    assert (capsys.readouterr().out, ran) == (said, [])
    (tmp_path / "summary.csv").unlink()  # made again
    main(words)
    assert ran == [spec]


def test_resume_goes_on_with_the_same_options_in_a_folder_that_was_moved(capsys, monkeypatch, tmp_path):
    spec = stopped(tmp_path / "a", lengths=(5, 7), cold=("fg_ulmcdqn",), options=("form=paper",), ablate=False)
    (tmp_path / "a").rename(tmp_path / "b")
    seen = []

    def study(options):
        with store.recorded(options.output, "nchain", options):
            seen.append(options)
        return [tmp_path / "summary.csv"]

    run_as(monkeypatch, study)
    main(["resume", str(tmp_path / "b")])
    assert capsys.readouterr().out == f"wrote {tmp_path / 'summary.csv'}\n"
    assert seen == [nchain.NChainStudy(**{**vars(spec), "output": tmp_path / "b"})]
    main(["resume", str(tmp_path / "b")])
    assert capsys.readouterr().out == f"nchain in {tmp_path / 'b'} is finished already\n"
    assert len(seen) == 1


def test_a_resumed_study_that_is_stopped_prints_how_to_continue(capsys, monkeypatch, tmp_path):
    def study(options):
        raise KeyboardInterrupt

    stopped(tmp_path / "with space")
    run_as(monkeypatch, study)
    assert call("resume", str(tmp_path / "with space")) == 130
    assert capsys.readouterr().err == f"\nstopped; to continue: feelgood resume '{tmp_path / 'with space'}'\n"


def damaged(manifest, **changes):
    return json.dumps({**manifest, **changes})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda m: json.dumps(m)[:100], "cannot be read"),
        (lambda m: "", "cannot be read"),
        (lambda m: damaged(m, study=["nchain"]), "must hold a str as 'study', got ['nchain']"),
        (lambda m: damaged(m, spec=None), "must hold a dict as 'spec', got None"),
        (lambda m: damaged(m, study="nchian"), "got 'nchian'; did you mean 'nchain'?"),
        (
            lambda m: damaged(m, spec={**m["spec"], "speed": 3}),
            "another version of feelgood, which has other options: speed",
        ),
        (lambda m: damaged(m, spec={**m["spec"], "lengths": 5}), "lengths must be of type tuple, got 5"),
        (lambda m: damaged(m, spec={**m["spec"], "lengths": ["5"]}), "lengths must be of type int, got '5'"),
        (lambda m: damaged(m, spec={**m["spec"], "num_kept": True}), "num_kept must be of type int, got True"),
        (lambda m: damaged(m, spec={**m["spec"], "preset": "pa"}), "did you mean 'paper'?"),
        (lambda m: damaged(m, spec={**m["spec"], "num_steps": 1500}), "num_steps must be a multiple of 1000, got 1500"),
    ],
)
def test_a_damaged_manifest_gives_one_line_and_code_two_and_is_not_changed(capsys, tmp_path, damage, message):
    stopped(tmp_path)
    file = tmp_path / "manifest.json"
    file.write_text(damage(json.loads(file.read_text())))
    before = file.read_text()
    assert call("resume", str(tmp_path)) == 2
    captured = capsys.readouterr()
    assert message in captured.err
    assert captured.err.startswith("feelgood: ")
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert file.read_text() == before


def test_a_folder_without_a_study_cannot_be_resumed(capsys, tmp_path):
    reasons = {tmp_path: "it has no manifest.json", tmp_path / "nowhere": "there is no such folder"}
    for folder, why in reasons.items():
        assert call("resume", str(folder)) == 2
        assert capsys.readouterr().err == f"feelgood: folder {folder} holds no study: {why}\n"


def test_list_prints_every_name_with_its_line_and_paper(capsys):
    main(["list"])
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    for kind, entries in KINDS.items():
        assert kind in lines
        for name, summary, paper in entries():
            assert f"{name} {' '.join(summary.split())}" + (f" ({paper})" if paper else "") in lines


def test_list_prints_json_of_one_kind_or_of_all(capsys):
    main(["list", "agents", "--json"])
    agents = json.loads(capsys.readouterr().out)
    assert list(agents) == ["agents"]
    main(["list", "--json"])
    everything = json.loads(capsys.readouterr().out)
    assert list(everything) == list(KINDS)
    assert everything["agents"] == agents["agents"]
    papers = {entry["name"]: entry["paper"] for entry in agents["agents"]}
    assert papers["dqn"] == "Mnih et al., 2015"


def examined(capsys):
    code = call("doctor", "--json")
    report = json.loads(capsys.readouterr().out)
    assert report["ready"] == (code == 0)
    return code, {fact["name"]: fact for fact in report["facts"]}


def test_doctor_finds_this_machine_well(capsys, monkeypatch, tmp_path):
    monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(tmp_path))
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "code").write_bytes(bytes(2_500_000))
    code, facts = examined(capsys)
    assert code == 0
    assert facts["feelgood"]["value"] == feelgood.__version__
    assert all(facts[name]["value"] == metadata.version(name) for name in ("jax", "jaxlib", "optax", "pandas"))
    assert "pytest" not in facts
    assert facts["compiled code"]["value"] == f"{tmp_path} (1 files, 2.5 MB)"
    assert call("doctor") == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len(facts) + 1
    assert lines[-1] == "everything required is installed"


def without(monkeypatch, *missing):
    """Makes packages look as if they were not installed, all others as if they were."""

    def version(name):
        if name in missing:
            raise metadata.PackageNotFoundError(name)
        return "1.0"

    monkeypatch.setattr(doctor.metadata, "version", version)


def test_doctor_ends_with_code_one_if_something_needed_is_missing(capsys, monkeypatch):
    without(monkeypatch, "optax")
    code, facts = examined(capsys)
    assert code == 1
    assert [name for name, fact in facts.items() if fact["fatal"]] == ["optax"]
    assert facts["optax"]["fix"].endswith("-m pip install optax")


def test_doctor_names_the_command_that_installs_a_missing_extra(capsys, monkeypatch):
    without(monkeypatch, "ale-py", "jax-cuda13-plugin")
    code, facts = examined(capsys)
    assert code == 0
    for extra, package in (("atari", "ale-py"), ("cuda", "jax-cuda13-plugin")):
        assert facts[f"extra {extra}"]["value"] == f"missing {package}"
        assert facts[f"extra {extra}"]["fix"].endswith(f"-m pip install 'feelgood[{extra}]'")
    without(monkeypatch)
    _, facts = examined(capsys)
    assert facts["extra atari"]["value"] == facts["extra cuda"]["value"] == "installed"


def test_doctor_sees_a_gpu_that_jax_does_not_use(capsys, monkeypatch):
    import jax

    monkeypatch.setattr(jax, "devices", lambda: jax.local_devices(backend="cpu"))
    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(doctor, "_has_gpu", lambda: False)
    assert "gpu" not in examined(capsys)[1]
    monkeypatch.setattr(doctor, "_has_gpu", lambda: True)
    code, facts = examined(capsys)
    assert code == 0
    assert facts["gpu"]["fix"].endswith("pip install 'feelgood[cuda]'")
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert examined(capsys)[1]["gpu"]["fix"] == "unset JAX_PLATFORMS"


def test_doctor_ends_with_code_one_if_jax_finds_no_device(capsys, monkeypatch):
    import jax

    def devices():
        raise RuntimeError("Unable to initialize backend 'cuda'\nand more")

    monkeypatch.delenv("JAX_PLATFORMS", raising=False)
    monkeypatch.setattr(jax, "devices", devices)
    code, facts = examined(capsys)
    assert code == 1
    assert facts["devices"]["value"] == "none: Unable to initialize backend 'cuda'"


def process(*arguments):
    words = [sys.executable, "-m", "feelgood", *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=600)


def test_json_that_is_no_manifest_gives_one_line_and_code_two(tmp_path):
    (tmp_path / "manifest.json").write_text("[1, 2]")
    done = process("resume", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"feelgood: manifest {tmp_path / 'manifest.json'} must be a JSON object, got list\n"


def test_a_process_of_its_own_refuses_a_folder_of_another_study(tmp_path):
    (tmp_path / "manifest.json").write_text(json.dumps({"label": "other"}))
    done = process("run", "nchain", "--output", tmp_path)
    assert done.returncode == 2
    assert done.stderr == f"feelgood: output {tmp_path} holds another study; choose another folder or remove it\n"
    assert [file.name for file in tmp_path.iterdir()] == ["manifest.json"]


@pytest.mark.slow
def test_a_real_study_runs_in_a_process_of_its_own_and_again_in_no_time(tmp_path):
    options = ["--lengths", 5, "--agents", "dqn", "--num-steps", 1000, "--num-seeds", 3, "--output", tmp_path]
    names = ("curves.parquet", "summary.csv", "summary.md", "curves.png", "curves.pdf")
    for _ in range(2):
        done = process("run", "nchain", *options)
        assert done.returncode == 0, done.stderr
        written = {line.removeprefix("wrote ") for line in done.stdout.splitlines() if line.startswith("wrote ")}
        assert written == {str(tmp_path / name) for name in names}
    assert process("run", "nchain", *options, "--num-kept", 3).returncode == 2
