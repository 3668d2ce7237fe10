"""The public API: `utils/__init__.pyi`, its page docs/library.md, and what notebooks import."""

import ast
import doctest
import importlib
import inspect
import json
import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

import utils

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
PART = re.compile(r"((?:^- `.*\n)+)\n```python\n([\s\S]*?)```", re.MULTILINE)
RUN = """
import contextlib, io, json, sys
for text in json.load(sys.stdin):
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(text, "docs/library.md", "exec"), {"__name__": "__main__"})
    print("SHOWN " + json.dumps(shown.getvalue()))
"""
OPENED = """What a lesson imports of the library besides its public names, to show how it works.
01 environment.count_cores simulate.published.read_source
02 collectives.combine_values
03 data.make_tfds_folder
04 measure.images_per_second
06 collectives.ProcessRing
08 processes.registry.find_clusters tf_config.view_as_simple tf_config.view_as_slurm
09 training.input_feed.ReadLog
10 simulate.failures.daly_interval_seconds simulate.failures.expected_run_seconds
10 simulate.failures.group_mtbf_seconds simulate.failures.overhead_fraction
10 simulate.failures.simulate_run_seconds
10 training.recovery.METHODS training.recovery.trainer.Trainer
11 models.build_embedding_model
11 training.parameter_server.counting
11 training.parameter_server.variables
11 training.parameter_server.checkpoints.train_with_checkpoints
11 training.parameter_server.coordination.connect
11 training.parameter_server.coordination.find_worker
11 training.parameter_server.loop.AsynchronousLoop
12 input_pipeline.LOCAL input_pipeline.SLOW input_pipeline.TuneSettings
12 input_pipeline.chain.take_apart input_pipeline.ladder.LADDER
12 input_pipeline.ladder.as_written input_pipeline.ladder.autotuned
12 input_pipeline.ladder.list_files input_pipeline.ladder.read_at_once
12 input_pipeline.measuring.classes_per_batch input_pipeline.measuring.count_elements
12 input_pipeline.measuring.ids_of input_pipeline.measuring.make_limit
12 input_pipeline.parsing.augment input_pipeline.parsing.augment_batch
12 input_pipeline.parsing.parse input_pipeline.parsing.parse_batch
12 input_pipeline.rebuild.rebuild input_pipeline.store.read_shard
12 input_pipeline.trace.timeline_rows input_pipeline.trace.trace simulate.input.InputCosts
13 input_pipeline.parsing.parse
13 input_pipeline.service.DataService input_pipeline.service.consume
13 input_pipeline.sharding.all_ids input_pipeline.sharding.format_ids
13 input_pipeline.sharding.ids_per_replica input_pipeline.sharding.sharding_options
14 devices.describe_topology
15 parallel.attention.SplitAttention parallel.group.DeviceGroup
15 parallel.layers.run_placed parallel.parts.run_unsplit
16 models.build_encoder_decoder parallel.parts.measure_layers parallel.parts.run_unsplit
16 parallel.processes.join_reports parallel.processes.run_stage parallel.stage.Rules
16 schedules.read_schedule
17 training.large_batch.RatePlan training.large_batch.list_rates
19 engines.manifests.describe_check
20 calibrate.calibrate calibrate.check_locally simulate.comparisons.llama_mtbf_hours
20 simulate.comparisons.transformer_flops simulate.failures.best_interval_seconds
20 simulate.failures.effective_time_fraction
21 engines.RunSettings engines.run_program
21 simulate.parameter_server.make_cluster simulate.parameter_server.simulate_parameter_server
21 simulate.parameter_server.synchronous_rate strategies.SUPPORT
22 engines.RunSettings engines.run_program
22 calibrate.calibrate calibrate.predict_local
22 data.scenes.MASK_CLASS_NAMES data.scenes.MAX_NOISE
22 data.masks.count_pixels data.masks.score_masks input_pipeline.scenes.parse_scene
22 input_pipeline.scenes.parse_scene_batch input_pipeline.scenes.write_scenes
23 collectives.Network collectives.Send collectives.count_bytes collectives.ring_all_gather
23 collectives.ring_reduce_scatter collectives.split_into_chunks
23 parallel.group.DeviceGroup simulate.planner.Run simulate.planner.tabulate_layouts
23 simulate.transformer.find_kept_bytes
24 engines.RunSettings engines.run_program
"""


def read_parts() -> list[tuple[set[str], str]]:
    """Return the parts of the page: the names that its list describes, and its example."""
    return [
        ({name for item in items.splitlines() for name in names_of(item)}, code)
        for items, code in PART.findall(PAGE)
    ]


def names_of(item: str) -> list[str]:
    """Return the names that a list item describes; they stand before its first colon."""
    return re.findall(r"`(\w+)`", item.partition(":")[0].partition(" write ")[0])


def imported_from_utils(text: str) -> set[str]:
    """Return "room.name" for all that Python text imports from `utils`, magics left out."""
    plain = re.sub(r"^\s*[%!].*$", "", text, flags=re.MULTILINE)
    found = set()
    for node in ast.walk(ast.parse(plain)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "utils":
            room = node.module.partition(".")[2]
            found |= {f"{room}.{alias.name}".lstrip(".") for alias in node.names}
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "utils"}
    return found


def is_public(whole: str) -> bool:
    """Return True if "room.name" is the very object that `utils` offers under that name."""
    room, _, name = whole.rpartition(".")
    module = importlib.import_module(f"utils.{room}".rstrip("."))
    return name in utils.__all__ and getattr(module, name) is getattr(utils, name)


def test_every_public_name_is_there_and_hides_no_room():
    assert 60 <= len(utils.__all__) <= 80 and set(utils.__all__) <= set(dir(utils))
    rooms = {path.stem for path in (ROOT / "utils").iterdir()}
    assert not rooms & set(utils.__all__)
    for name in utils.__all__:
        value = getattr(utils, name)
        assert getattr(value, "__doc__", None), name
    with pytest.raises(AttributeError, match="no attribute 'trian'"):
        _ = utils.trian


def test_every_public_docstring_has_an_example_and_those_with_a_prompt_run():
    names = {name: getattr(utils, name) for name in utils.__all__}
    runner, ran = doctest.DocTestRunner(verbose=False), 0
    for name, value in names.items():
        source = ast.parse(inspect.getsource(value)).body[0]  # Python 3.13 dedents __doc__
        text = ast.get_docstring(source, clean=False)
        assert re.search(r"^ {8}\S|^ {4}>>> ", text, re.MULTILINE), name
        example = doctest.DocTestParser().get_doctest(text, {"np": np, **names}, name, None, 0)
        ran += runner.run(example).attempted
    assert runner.failures == 0 and ran > 40


def test_the_page_describes_the_public_names_and_uses_each():
    parts = read_parts()
    described = [name for names, _ in parts for name in names]
    assert sorted(described) == utils.__all__
    assert f"These {len(utils.__all__)} names" in PAGE
    for names, code in parts:
        assert imported_from_utils(code) >= names, "an example imports what its list describes"
        used = {node.id for node in ast.walk(ast.parse(code)) if isinstance(node, ast.Name)}
        assert names <= used, names - used
        assert max(map(len, code.splitlines())) <= 100


@pytest.mark.slow(40)
def test_every_example_of_the_page_runs_and_prints_what_it_says(tmp_path, write_warm):
    blocks = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    ran = subprocess.run(
        write_warm(RUN),
        input=json.dumps(blocks),
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    assert ran.returncode == 0, ran.stderr[-3000:]
    told = re.findall(r"^SHOWN (.*)$", ran.stdout, re.MULTILINE)
    for block, shown in zip(blocks, map(json.loads, told), strict=True):
        expected = re.findall(r"^\s*print\(.*\)  # (.+)$", block, re.MULTILINE)
        assert [line for line in expected if line not in shown.splitlines()] == [], shown


def test_notebooks_import_public_names_and_what_their_lesson_opens():
    """A name that becomes public leaves the list; a new one needs a reason to be in it."""
    opened = {}
    for line in OPENED.splitlines()[1:]:
        lesson, *names = line.split()
        opened.setdefault(lesson, set()).update(names)
    sources = [*ROOT.glob("notebooks/src/*.py"), *ROOT.glob("solutions/src/*.py")]
    found = {}
    for path in sources:
        names = imported_from_utils(path.read_text(encoding="utf-8"))
        own = {name for name in names if not is_public(name)}
        if own:
            found[path.name[:2]] = own
    assert found == opened


def test_examples_import_nothing_of_ours():
    for path in (ROOT / "examples").rglob("*.py"):
        assert not imported_from_utils(path.read_text(encoding="utf-8")), path
