"""The conventions of a command line, and a few hundred bad ones: one line each, no traceback."""

import random
import re
import shlex
import shutil
from pathlib import Path

import pytest
from child_programs import run_child
from command_lines import run_all
from process_watch import wait_for

from distlab.cli import describe_versions, main, make_parser
from distlab.cli.examples import list_examples
from distlab.cli.long_command import Progress, say_waiting

HUGE = "9" * 400
ALL_REDUCE = "simulate all-reduce --algorithm ring --ranks 4 --bytes 8 --latency 1us".split()
ALL_REDUCE += ["--bandwidth", "1GB/s"]
PIPELINE = "simulate pipeline --schedule 1f1b --stages 2 --micro-batches 4 --forward 1".split()
PIPELINE += "--backward-input 1 --backward-weight 1".split()
BAD_WORDS = ["", HUGE, f"-{HUGE}", "a\nb", "x" * 500, "\udce9", "\x1b[31m"]
BAD_WORDS += "-1 0 1e400 nan inf 1.5 x é -- - ../.. /dev/null /no/such/place {} [1 ' \"".split()
BAD_WORDS += "%s %(prog)s {0} : a:b NaN:nan".split()


def list_leaves(parser, path=()):
    commands = parser.list_commands()
    return sum(
        (list_leaves(below, (*path, name)) for name, below in commands.items()),
        [] if commands else [(path, parser)],
    )


def list_all(parser, path=()):
    """Yield the words of every command and of what stands above it; none for `distlab`."""
    yield path
    for name, below in parser.list_commands().items():
        yield from list_all(below, (*path, name))


def make_bad_lines():
    """Return command lines that are wrong somewhere; the same ones every time.

    None of them trains, opens JupyterLab, or ends a cluster.
    """
    lines = [[], ["tarin"], ["--verson"], ["train", "extra"], ["help", "trian"], ["-x"], ["--"]]
    lines += [["train", "--epoch", "1"], ["completion", "fish"], ["processes", "stop", "no-such"]]
    for path, parser in list_leaves(make_parser()):
        lines += [[*path, "--no-such-option"], [*path, "--jso"], [*path, *["x"] * 9]]
        for name in parser._option_string_actions:
            if name.startswith("--") and name != "--help":
                wrong = [*path, "--no-such-option"]  # so that none of them does anything
                lines += [[*wrong, name[:-1]], [*wrong, f"{name}={HUGE}"]]
    dice = random.Random(0)
    bases = [
        ALL_REDUCE,
        PIPELINE,
        *map(str.split, ("tf-config build --workers 2", "data verify mnist", "tf-config lint {}")),
        *map(str.split, ("check lab01", "grade lab01 in", "tune-input a:b", "tpu-ready a:b")),
        *map(str.split, ("submit lab01", "reset lab01", "processes list")),
    ]
    for base in bases:
        for _ in range(12):
            line = list(base)
            line[dice.randrange(1, len(line))] = dice.choice(BAD_WORDS)
            lines.append(line)
    lines += [[*line, dice.choice(BAD_WORDS)] for line in bases for _ in range(3)]
    return [line for line in lines if line[:1] != ["lab"]]


def test_bad_command_lines_end_in_one_line_without_a_traceback(tmp_path):
    lines = make_bad_lines()
    assert len(lines) > 300
    refused = 0
    for line, (status, output, errors) in zip(lines, run_all(lines, tmp_path), strict=True):
        assert status in (0, 1, 2), (line, status, errors)
        assert "Traceback" not in errors + output, (line, errors)
        assert "\x1b" not in errors, (line, errors)
        if status == 2:
            refused += 1
            assert errors.count("\n") == 1 and errors.startswith("distlab"), (line, errors)
            assert output == "" and len(errors) < 2000, (line, output, errors)
        else:
            assert errors == "" or line[0] in ("simulate", "data"), (line, errors)
    assert refused > 250


def test_no_option_may_be_abbreviated():
    for path, parser in list_leaves(make_parser()):
        assert not parser.allow_abbrev, path


def test_version_names_ours_and_theirs(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    pattern = (
        r"distlab \d+\.\d+\.\d+, TensorFlow 2\.\d+\.\d+, Keras 3\.\d+\.\d+, Python 3\.\d+\.\d+\n"
    )
    shown = capsys.readouterr().out
    assert re.fullmatch(pattern, shown) and shown == describe_versions() + "\n"


def test_every_help_is_the_same_asked_either_way(tmp_path):
    paths = list(list_all(make_parser()))
    asked = run_all([[*path, "--help"] for path in paths], tmp_path)
    helped = run_all([["help", *path] for path in paths], tmp_path)
    shorter = run_all([[*path, "-h"] for path in paths], tmp_path)
    assert len(paths) > 35 and asked == helped == shorter
    for path, (status, output, errors) in zip(paths, asked, strict=True):
        assert status == 0 and errors == "", path
        assert output.startswith(" ".join(["usage: distlab", *path])), path


ELSEWHERE = (  # examples that start servers, train, build or grade: their own tests run them
    *("lab", "check", "submit", "reset", "update", "train", "run", "tune-input", "tpu-ready"),
    *("doctor", "data fetch", "processes stop", "diagnose", "completion", "release", "grade"),
    *("build", "new", "book"),
)


def test_the_quick_examples_of_every_help_run(tmp_path, monkeypatch, capsys):
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "old.py").write_text("import tensorflow as tf\nx = tf.log(1.0)\n")
    (tmp_path / "train.py").write_text("import tensorflow as tf\n")
    monkeypatch.chdir(tmp_path)
    main(["tf-config", "build", "--workers", "2"])
    texts = re.findall(r"\{.*\}", capsys.readouterr().out)
    for number, text in enumerate(texts):
        (tmp_path / f"worker-{number}.json").write_text(text)
    ran = 0
    for path, parser in list_leaves(make_parser()):
        command = " ".join(path)
        if command.startswith(("classroom", *ELSEWHERE)):
            continue
        for line in list_examples(parser.prog):
            if "--builtin-model" in line or "processes stop" in line:  # trains; ends others
                continue
            line = line.replace("\\\n", "").replace('"$TF_CONFIG"', shlex.quote(texts[0]))
            words = shlex.split(line.partition(" > ")[0])[1:]
            Path("jupyterhub_config.py").unlink(missing_ok=True)
            status = main(words)
            # modernize ends with 1 if a program has something to change
            assert status == 0 or (command, status) == ("modernize", 1), line
            assert capsys.readouterr().out or "--output" in line, line
            ran += 1
    assert ran > 28


def complete(shell, words, folder):
    """Return what bash offers after `words`, the last of them being typed."""
    script = f"""eval "$({shell})"
COMP_WORDS=({" ".join(words)}); COMP_CWORD={len(words) - 1}
_distlab; printf '%s\\n' "${{COMPREPLY[@]}}" """
    done = run_child("bash", "-c", script, status=0)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_completes_commands_options_and_choices(tmp_path):
    (tmp_path / "script").write_text(run_all([["completion", "bash"]], tmp_path)[0][1])
    shell = f"cat {tmp_path / 'script'}"
    commands = complete(shell, ["distlab", "''"], tmp_path)
    assert set(make_parser().list_commands()) <= set(commands)
    assert complete(shell, ["distlab", "tr"], tmp_path) == ["train"]
    assert complete(shell, ["distlab", "train", "--ep"], tmp_path) == ["--epochs"]
    assert complete(shell, ["distlab", "tf-config", "l"], tmp_path) == ["lint"]
    assert complete(shell, ["distlab", "tf-config", "lint", "--str"], tmp_path) == ["--strategy"]
    words = ["distlab", "simulate", "pipeline", "--schedule", "zb"]
    assert complete(shell, words, tmp_path) == ["zb-h1", "zb-h2"]
    words = ["distlab", "train", "--replicas", "2", "--strategy", "mi"]
    assert complete(shell, words, tmp_path) == ["mirrored"]
    assert "--schedule" not in complete(shell, ["distlab", "train", "--"], tmp_path)


@pytest.mark.skipif(shutil.which("bash") is None, reason="no bash here")
def test_bash_knows_every_command_with_all_of_its_options(tmp_path):
    parser = make_parser()
    script = [run_all([["completion", "bash"]], tmp_path)[0][1]]
    for path in (paths := list(list_all(parser))):
        words = " ".join(["distlab", *path, "''"])
        script.append(f"COMP_WORDS=({words}); COMP_CWORD={len(path) + 1}; _distlab")
        script.append('echo "${COMPREPLY[@]}"')
    done = run_child("bash", "-c", "\n".join(script), status=0)
    assert done.stderr == ""
    for path, line in zip(paths, done.stdout.splitlines(), strict=True):
        below, options = parser.find(path).list_commands(), parser.find(path)._option_string_actions
        assert set(line.split()) >= {*below, *(o for o in options if o.startswith("--"))}, path


def test_zsh_runs_the_same_script_through_its_own_bashcompinit(tmp_path):
    lines = [["completion", "bash"], ["completion", "zsh"]]
    bash, zsh = (output for _, output, _ in run_all(lines, tmp_path))
    assert zsh.endswith(bash) and "bashcompinit" in zsh.removesuffix(bash)


def test_a_long_command_says_how_far_it_is_where_there_is_no_terminal(capsys):
    progress = Progress("distlab train", 1_000, "step", first=10, seconds=0.0)
    progress.show(20, "epoch 1")
    progress.show(1_000)
    progress.close()
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.splitlines() == [
        "distlab train: 20 of 1,000 steps, epoch 1",
        "distlab train: 1,000 of 1,000 steps",
    ]
    Progress("distlab train", 10, "step", seconds=600.0).show(5)  # not yet
    Progress("distlab train", 10, "step", quiet=True, seconds=0.0).show(5)
    assert capsys.readouterr().err == ""
    with say_waiting("distlab data fetch mnist", seconds=0.01):
        said = wait_for(lambda: capsys.readouterr().err)
    assert re.match(r"distlab data fetch mnist: \d+ s", said)
