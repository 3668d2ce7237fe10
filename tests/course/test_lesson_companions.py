"""Small companions of lessons: what they count, judge and draw."""

import json
import re
import sys
from pathlib import Path

import numpy as np
import psutil
import pytest
from child_programs import run_child

from distlab.errors import CourseError
from distlab.lessons.cluster_pictures import draw_two_workers
from distlab.lessons.typed_cluster import run_tasks
from utils.tf_config import diagnose, pick_free_ports, symptoms

ROOT = Path(__file__).resolve().parents[2]


def test_live_loss_draws_the_loss_of_the_last_steps():
    from distlab.lessons.live_loss import LiveLoss

    class Screen:
        pictures = []

        def update(self, picture):
            self.pictures.append(picture)

    live, losses = LiveLoss("Loss", every=2), np.arange(1.0, 11.0)
    live._screen = Screen()
    for epoch in range(2):
        live.on_epoch_begin(epoch)
        for batch in range(5):  # Keras hands over the mean of the epoch so far
            mean = losses[5 * epoch : 5 * epoch + batch + 1].mean()
            live.on_train_batch_end(batch, {"loss": mean})
    live.on_train_end()
    assert live.steps == [1, 3, 5, 7, 9]
    np.testing.assert_allclose(live.losses, [1.0, 2.5, 4.5, 6.5, 8.5], rtol=1e-12)
    assert "epoch 2" in Screen.pictures[-1].svg


def test_kept_bytes_are_what_the_backward_pass_reads():
    import tensorflow as tf

    from distlab.lessons.kept_activations import count_kept_bytes

    inputs, weights = tf.ones([5, 4]), tf.Variable(tf.ones([4, 3]))

    def forward(x):
        return tf.tanh(tf.tanh(x @ weights))  # [5, 3]

    one_layer = 5 * 3 * 4  # bytes: tanh's gradient reads its result
    assert count_kept_bytes(lambda x: x + 1.0, inputs) == 0
    both = count_kept_bytes(forward, inputs)
    assert both - count_kept_bytes(lambda x: tf.tanh(x @ weights), inputs) == one_layer
    doubled = count_kept_bytes(forward, tf.ones([10, 4]))
    assert doubled - both >= 2 * one_layer
    assert count_kept_bytes(tf.recompute_grad(forward), inputs) < both


def test_numbers_and_gradient_sizes_are_drawn_and_named():
    from distlab.lessons.float_pictures import draw_numbers, draw_shares

    quarters, halves = np.arange(0, 3, 0.25), np.arange(0, 3, 0.5)
    picture = draw_numbers({"fine": quarters, "coarse": halves}, 1, 2)
    assert picture.alt == "Every number from 1 to 2: fine has 5; coarse has 3."
    sizes = {"a": np.array([0.0, 2.0**-10, 2.0**-10]), "b": np.array([2.0**-30])}
    assert "2^-24, lie 33.3% of a, 100.0% of b." in draw_shares(sizes, floor=-24).alt


def test_a_tpu_mesh_says_which_replicas_each_chip_has():
    from distlab.lessons.tpu_mesh import draw_mesh

    places = [(x, y, 0, core) for y in (0, 1) for x in (0, 1, 2) for core in (0, 1)]
    picture = draw_mesh({"coordinates": [places], "cores": 12}, global_batch_size=120)
    assert picture.alt.startswith("A mesh of 3 × 2 chips, 2 cores on each: chip 0, 0 has replicas")
    assert "chip 1, 1 has replicas 8, 9" in picture.alt
    assert picture.svg.count(">10 images<") == 12


def test_tiles_say_which_devices_hold_a_piece():
    from distlab.lessons.dtensor_tiles import draw_tiles, find_tiles

    mesh = {"batch": 2, "model": 2}
    assert find_tiles(["batch", "unsharded"], mesh) == {(0, 0): [0, 1], (1, 0): [2, 3]}
    assert find_tiles(["unsharded", "model"], mesh) == {(0, 0): [0, 2], (0, 1): [1, 3]}
    assert find_tiles(["model", "batch"], mesh) == {
        (0, 0): [0],
        (1, 0): [1],
        (0, 1): [2],
        (1, 1): [3],
    }
    assert find_tiles(["unsharded"] * 2, mesh) == {(0, 0): [0, 1, 2, 3]}
    tensors = {"x": ((32, 784), ("batch", "unsharded")), "y": ((32, 10), ("batch", "model"))}
    picture = draw_tiles(tensors, mesh)
    assert "x: tile 0, 0 on 0 and 1, tile 1, 0 on 2 and 3; y: tile 0, 0 on 0," in picture.alt
    assert ">32 × 784<" in picture.svg and picture.png().startswith(b"\x89PNG")


def test_the_cards_of_lessons_14_to_17_run_as_they_stand(write_warm):
    """One process for all: the logical devices of lesson 15's come before anything runs."""
    cards = [read_card(lesson) for lesson in ("15", "16", "17", "14")]
    program = "\n".join(f"exec({card!r}, {{}})" for card in cards)
    done = run_child(*write_warm(program), cwd=ROOT)
    assert "[TensorShape([784, 6]), TensorShape([784, 6])" in done.stdout
    assert "zb-h2 None 0.0 (7, 7, 7, 7)" in done.stdout
    assert "TPUs not found in the cluster" in done.stderr  # 14 needs one


def test_the_cards_of_lessons_6_7_and_9_run_as_they_stand(tmp_path, write_warm):
    program = "\n".join(f"exec({read_card(lesson)!r}, {{}})" for lesson in ("09", "06", "07"))
    run_child(*write_warm(program), cwd=tmp_path, status=0)
    assert (tmp_path / "model.keras").exists()  # the only process is the chief


def test_the_card_of_lesson_8_is_started_twice(tmp_path):
    card = read_card("08")
    assert "int(sys.argv[1])" in card
    for place, port in zip(("12345", "12346"), pick_free_ports(2)):
        card = card.replace(f"localhost:{place}", f"localhost:{port}")
    card = card.replace("int(sys.argv[1])", "json.loads(os.environ['TF_CONFIG'])['task']['index']")
    program = write_program(tmp_path, card + "\nprint(is_chief)\n")
    assert [lines[-1] for lines in run_tasks(program, TASKS)] == ["True", "False"]


def read_card(lesson):
    (path,) = (ROOT / "notebooks" / "src").glob(f"{lesson}_*.py")
    card = path.read_text().split("# ## Cheat sheet")[1].split("# ```")[1]
    return "\n".join(line[2:] for line in card.splitlines()[1:])


def write_program(folder, text):
    (folder / "train.py").write_text("import json, os, time\n" + text)
    return folder / "train.py"


TASKS = [json.dumps({"task": {"type": "worker", "index": index}}) for index in range(2)]


def test_tasks_run_at_once_each_under_its_own_tf_config(tmp_path):
    """Each waits until the other has left its file, so both must be there together."""
    program = write_program(
        tmp_path,
        "index = json.loads(os.environ['TF_CONFIG'])['task']['index']\n"
        f"folder = {str(tmp_path)!r}\n"
        "open(f'{folder}/{index}', 'w').close()\n"
        "while not os.path.exists(f'{folder}/{1 - index}'): time.sleep(0.01)\n"
        "print('I am', index)\nprint('done')\n",
    )
    assert run_tasks(program, TASKS) == [["I am 0", "done"], ["I am 1", "done"]]


@pytest.mark.parametrize(
    ("second", "says"),
    [
        ("raise ValueError('no data')", "Task 0 hasn't ended"),
        ("time.sleep(600)", "hasn't ended"),
    ],
)
def test_a_task_that_waits_in_vain_is_ended(tmp_path, second, says):
    """Task 0 ignores SIGTERM, as a TensorFlow worker does that waits for its peers."""
    program = write_program(
        tmp_path,
        "import signal\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"open({str(tmp_path)!r} + f'/{{os.getpid()}}.id', 'w').close()\n"
        "if '\"index\": 0' in os.environ['TF_CONFIG']: time.sleep(600)\n" + second,
    )
    with pytest.raises(CourseError, match=says):
        run_tasks(program, TASKS, seconds=5)
    assert not [path for path in tmp_path.glob("*.id") if psutil.pid_exists(int(path.stem))]


def test_a_task_that_fails_is_quoted(tmp_path):
    program = write_program(tmp_path, "raise ValueError('no data')")
    with pytest.raises(CourseError, match=r"(?s)task 0 ended with status 1:.*no data"):
        run_tasks(program, TASKS)


def test_arrows_join_workers_with_their_all_reduce_and_their_folders():
    alt = draw_two_workers().alt
    assert "the sum comes back to both" in alt and "worker 1 into a temporary one" in alt
    assert draw_two_workers().svg.count("gradients out, sum in") == 2


def test_lesson_08s_page_of_symptoms_has_lines_that_diagnose_looks_for():
    source = (ROOT / "notebooks/src/08_tf_config.py").read_text()
    page = source.partition("## Symptoms, on one page")[2].partition("## What it costs")[0]
    lines = re.findall(r"\| (?:nothing after )?`([A-Z][^`]+|tried[^`]+|stopped[^`]+)`", page)
    kinds = (symptoms.CONFIGURATION, symptoms.PROGRAM, symptoms.COLLATERAL)
    module = sys.modules[diagnose.__module__]
    own = [module.STRAGGLERS, module.SERVER, module.REPLICAS]
    patterns = [one.pattern for kind in kinds for one in kind] + own
    known = " ".join(pattern.pattern for pattern in patterns).replace(
        "Connection re(?:set|", "Connection reset"
    )
    assert len(lines) >= 7
    assert not [line for line in lines if re.split(r" \d", line)[0] not in known]
