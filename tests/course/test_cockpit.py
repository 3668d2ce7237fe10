"""The cockpit on real jobs: lanes that follow, buttons that act, marks, bytes, the still."""

import json
import math
import os
import re
import socket
import time

import pytest
from process_watch import wait_for

from distlab.figures import LaneRecord, job_lanes
from distlab.figures.lanes import MAX_POINTS, Mark, place_runs
from distlab.widgets import cockpit
from distlab.widgets.cockpit_lanes import name_states
from distlab.widgets.cockpit_panel import draw_curve
from utils.cluster import ClusterError, LocalCluster
from utils.cluster.group import Task
from utils.cluster.launcher import TaskOrder
from utils.cluster.traffic import TrafficMeter
from utils.errors import DistributedError

FLOATS = 50_000


def count_down(folder, steps, own_count=False):
    """Steps that all-reduce FLOATS numbers; a saved step to go on from; a loss of 1 / step."""
    import tensorflow as tf

    from utils.events import report

    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    index = json.loads(os.environ["TF_CONFIG"])["task"]["index"]
    place = os.path.join(folder, "step")
    done = int(open(place).read()) if os.path.exists(place) else 0

    def give():
        return tf.distribute.get_replica_context().all_reduce("sum", tf.ones([FLOATS]))

    step = tf.function(lambda: strategy.run(give))
    for number in range(done + 1, steps + 1):
        step()
        counted = {"sent_bytes": 4 * FLOATS * number} if own_count else {}
        report("step", step=number, loss=1 / number, images_per_second=1234.0, **counted)
        print(f"<b>step {number}</b>")
        if index == 0 and number % 10 == 0:
            with open(place + ".part", "w") as file:
                file.write(str(number))
            os.replace(place + ".part", place)
        time.sleep(0.03)
    return done


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(workers=2) as cluster:
        yield cluster


def lanes_of(view):
    return {lane["name"]: lane for lane in view.view["lanes"]}


def step_of(view, name="worker 1"):
    found = re.match(r"step (\d+)", lanes_of(view)[name]["facts"])
    return int(found[1]) if found else 0


def press(view, action, task=""):
    """What the browser sends when a button is pressed."""
    view._handle_custom_msg({"action": action, "task": task}, [])


def test_a_worker_dies_and_comes_back_in_front_of_the_reader(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 80, restarts=1)
    view = cockpit(job)
    sent = []
    view.observe(lambda change: sent.append(time.monotonic()), names="view")
    wait_for(lambda: step_of(view) >= 23)
    assert lanes_of(view)["worker 1"]["can"] == {"kill": True, "pause": True, "restart": True}
    press(view, "kill", "worker 1")
    wait_for(lambda: "killed by you" in lanes_of(view)["worker 1"]["notes"])
    wait_for(lambda: "back at step" in lanes_of(view)["worker 0"]["notes"])
    [done, same] = job.wait(60)
    wait_for(lambda: not view._thread.is_alive())

    killed = lanes_of(view)["worker 1"]
    at, back = re.fullmatch(
        r"✕ killed by you at step (\d+) · ↻ back at step (\d+)", killed["notes"]
    ).groups()
    # worker 1 may be killed between a step and its report of it: worker 0, which took the same
    # step, may have saved it, and no later one can be done without worker 1
    assert int(at) >= 23 and int(back) == done + 1 <= int(at) + 2 and done == same
    assert re.fullmatch(r"✕ worker 1 gone at step \d+ · ↻ back at step \d+",
                        lanes_of(view)["worker 0"]["notes"])  # fmt: skip
    for lane in view.view["lanes"]:
        assert lane["words"] == "✔ done" and lane["state"] == "done"
        assert lane["facts"] == "step 80 · loss 0.0125 · 1,234\u00a0images/s"
        assert not any(lane["can"].values())
        assert lane["lines"].endswith("<b>step 80</b>") and len(lane["lines"].split("\n")) == 4
        assert lane["curve"].count("<polyline") == 2, "one for each attempt"
        assert f'aria-label="Loss over time, {lane["name"]}: step 80' in lane["curve"]
    assert view.view["status"] == "done (attempt 2)" and view.view["finished"]
    assert all(b - a > 0.2 for a, b in zip(sent[::2], sent[2::2])), "four a second at most"
    press(view, "kill", "worker 0")
    wait_for(lambda: view.view["message"] == "the job has ended")


def test_pause_resume_restart_and_stop(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 10_000)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 3)
    press(view, "pause", "worker 0")
    wait_for(lambda: lanes_of(view)["worker 0"]["words"] == "❚❚ paused")
    wait_for(lambda: lanes_of(view)["worker 1"]["words"] == "◌ waiting for worker 0")
    assert lanes_of(view)["worker 0"]["pause"] == "resume"
    held = step_of(view)
    press(view, "resume", "worker 0")
    wait_for(lambda: step_of(view) > held + 2)
    assert lanes_of(view)["worker 0"]["pause"] == "pause"
    notes = lanes_of(view)["worker 0"]["notes"]
    assert re.fullmatch(r"❚❚ paused by you at step \d+ · ↻ resumed by you at step \d+", notes)
    press(view, "restart", "worker 1")
    wait_for(lambda: "cannot come back alone" in view.view["message"])
    assert "restarts=1" in view.view["message"] and not job.finished
    press(view, "stop")
    wait_for(lambda: view.view["finished"])
    assert view.view["status"] == "ended: job: was stopped"
    assert {lane["words"] for lane in view.view["lanes"]} == {"■ stopped"}
    press(view, "explode", "worker 1"), press(view, "kill", "worker x")
    with pytest.raises(ClusterError, match="was stopped"):
        job.wait(5)


def test_restart_of_a_synchronous_task_restarts_its_group_where_that_is_allowed(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 40, restarts=1)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 12)
    view.act("restart", "worker 1")
    assert job.wait(60)[0] in (10, 20, 30) and job.attempt == 2
    wait_for(lambda: not view._thread.is_alive())
    assert "✕ restarted by you at step" in lanes_of(view)["worker 1"]["notes"]


def test_bytes_are_the_kernels_or_the_tasks_own_count(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 120)
    view = cockpit(job)
    wait_for(lambda: step_of(view) > 40)
    process = job.tasks[1].process
    sent, received = view._book._meter.read([process])[process]
    step = step_of(view)
    job.wait(60)
    reduced = 4 * FLOATS  # each of two workers sends half of its numbers twice
    assert 0.7 * reduced * step < sent < 2 * reduced * (step + 20)
    assert 0.7 * reduced * step < received < 2 * reduced * (step + 20)
    assert re.fullmatch(r"TCP: [\d.]+ MiB out, [\d.]+ MiB in", lanes_of(view)["worker 1"]["bytes"])
    own = tmp_path / "own"
    own.mkdir()
    job = cluster.start(count_down, str(own), 30, own_count=True)
    job.wait(60)
    view = cockpit(job)
    assert lanes_of(view)["worker 0"]["bytes"] == "5.7 MiB out (its own count)"
    wait_for(lambda: not view._thread.is_alive())


def test_the_meter_counts_every_byte_of_a_connection_also_once_it_has_closed():
    meter, own = TrafficMeter(), os.getpid()
    meter.read([own])
    before = meter.read([own]).get(own, (0, 0))
    with socket.create_server(("127.0.0.1", 0)) as server:
        with socket.create_connection(server.getsockname()) as out, server.accept()[0] as into:
            out.sendall(bytes(123_456))
            got = 0
            while got < 123_456:
                got += len(into.recv(1 << 16))
            after = meter.read([own])[own]
    assert (after[0] - before[0], after[1] - before[1]) == (123_456, 123_456)
    assert meter.read([own])[own] == after
    assert 2**30 not in meter.read([2**30]), "no such process"


def test_a_still_picture_stands_in_where_widgets_cannot_run(cluster, tmp_path):
    job = cluster.start(count_down, str(tmp_path), 12)
    job.wait(60)
    view = cockpit(job)
    bundle = view._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert 'role="img"' in bundle["text/html"] and len(bundle["image/png"]) > 1000
    assert bundle["text/plain"] == (
        "Cockpit: The job: done. worker 0: done, loss from 1 to 0.0833. "
        "worker 1: done, loss from 1 to 0.0833."
    )
    assert "worker 0: done" in view.picture().html
    view.close()
    assert not view._thread.is_alive() or wait_for(lambda: not view._thread.is_alive())


def make_task(name, state, role="call"):
    job, index = name.split()
    return Task(TaskOrder(name, role, 1), job, int(index), state=state)


def test_states_say_who_waits_and_who_serves():
    group = [make_task("worker 0", "running"), make_task("worker 1", "killed")]
    assert name_states(group, False)["worker 0"] == ("waiting", "for worker 1")
    servers = [make_task("chief 0", "running"), make_task("worker 0", "killed", "serve")]
    servers.append(make_task("ps 0", "running", "serve"))
    assert name_states(servers, False) == {
        "chief 0": ("running", ""), "worker 0": ("killed", ""), "ps 0": ("serving", ""),
    }  # fmt: skip
    assert name_states(servers, True)["ps 0"] == ("stopped", "")


def test_lanes_are_thinned_and_skip_losses_that_are_not_finite():
    times = [float(t) for t in range(1000)]
    losses = [math.nan if t % 7 == 0 else 1000 - t for t in times]
    attempts, marks = [1] * 600 + [2] * 400, [Mark("end", "gone", 600.0)]
    lane = LaneRecord(
        "worker 0", "done", "done", "✔", times=times, losses=losses, attempts=attempts, marks=marks
    )  # fmt: skip
    assert len(lane.runs) == 2 and sum(map(len, lane.runs)) <= MAX_POINTS
    assert lane.runs[-1][-1] == (999.0, 1.0) and all(
        math.isfinite(v) for r in lane.runs for _, v in r
    )
    box = (10.0, 20.0, 300.0, 50.0)
    points = [p for run in place_runs(lane, box, 999.0) for p in run]
    assert all(10 <= x <= 310 and 20 <= y <= 70 for x, y in points)
    assert draw_curve(lane, 999.0).count("<polyline") == 2
    assert draw_curve(LaneRecord("ps 0", "serving", "serving", "▶"), 1.0) == ""
    one = LaneRecord("<w>", "done", "done", "✔", times=[0.0], losses=[1.0], attempts=[1])
    assert "<circle" in draw_curve(one, 1.0) and "<w>" not in draw_curve(one, 1.0)
    alt = job_lanes([lane], title="The job").alt
    assert alt == "The job. worker 0: done, loss from 995 to 1, gone."
    with pytest.raises(DistributedError, match="no task to draw"):
        job_lanes([], title="The job")
