"""Pictures of who is who in a cluster: its jobs (lesson 08), and two workers (lesson 09)."""

from distlab.figures import Arrow, Box, Picture, diagram


def draw_jobs() -> Picture:
    """Draw the two kinds of cluster with the jobs in each."""
    boxes = {
        "left": Box("synchronous: every worker trains", 0, 34, 320, 212),
        "w0": Box("worker 0\nalso saves", 20, 78, 130, 54, "compute"),
        "w1": Box("worker 1", 170, 78, 130, 54, "compute"),
        "sum": Box("all-reduce of gradients", 20, 184, 280, 44, "reduce"),
        "right": Box("parameter servers", 340, 34, 268, 212),
        "chief": Box("chief\ndirects, saves", 356, 70, 112, 50, "data"),
        "worker": Box("worker 0, 1, …", 356, 184, 112, 44, "compute"),
        "ps": Box("ps 0, 1, …\nhold variables", 488, 184, 108, 44, "server"),
        "eval": Box("evaluator\nstands outside", 612, 184, 108, 44, "text"),
    }
    arrows = [Arrow("w0", "sum", both=True), Arrow("w1", "sum", both=True)]
    arrows += [Arrow("chief", "worker", "steps"), Arrow("worker", "ps", both=True)]
    alt = (
        "Left: a synchronous cluster, where worker 0 and worker 1 both train and add up their "
        "gradients in an all-reduce; worker 0 also saves. Right: a cluster with parameter servers, "
        "where the chief directs and saves, workers take steps from it, and ps tasks hold the "
        "variables that workers read and update; an evaluator stands outside."
    )
    return diagram(
        boxes, arrows, title="Two kinds of cluster, and the jobs in them", alt=alt, height_px=252
    )


def draw_two_workers() -> Picture:
    """Draw two workers, the all-reduce between them, and the folders into which they save."""
    boxes, arrows = {}, []
    for i, x in enumerate((0, 376)):
        title = "worker 0, the chief: a process" if i == 0 else "worker 1: a process"
        boxes[f"worker {i}"] = Box(title, x, 100, 344, 150)
        step = {"x": x + 14, "width": 316, "height": 36}
        boxes[f"weights {i}"] = Box("a copy of every variable", y=136, kind="variables", **step)
        text = "its half of the global batch, gradients"
        boxes[f"step {i}"] = Box(text, y=198, kind="compute", **step)
        arrows.append(Arrow(f"worker {i}", "sum", "gradients out, sum in", both=True))
    boxes["sum"] = Box("all-reduce over the network", 0, 318, 720, 36, "reduce")
    boxes["kept"] = Box("saved into the shared folder: kept", 14, 34, 316, 32, "data")
    boxes["aside"] = Box("saved into a temporary folder: thrown away", 390, 34, 316, 32, "data")
    arrows += [Arrow("worker 0", "kept"), Arrow("worker 1", "aside")]
    alt = (
        "Two workers side by side, the first of them the chief. Each is a process, holds a copy of "
        "every variable and computes gradients of its half of the global batch. Gradients go from "
        "both into one all-reduce over the network, and the sum comes back to both. The chief "
        "saves into the shared folder, worker 1 into a temporary one that is thrown away."
    )
    return diagram(
        boxes,
        arrows,
        title="Two workers share gradients; the chief's checkpoint is kept",
        alt=alt,
        height_px=360,
    )
