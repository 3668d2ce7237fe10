"""Lessons 11 and 13: who talks to whom, with parameter servers and in the tf.data service."""

from distlab.figures import Arrow, Box, diagram
from distlab.figures.picture import Picture


def draw_parameter_servers() -> Picture:
    """Draw the coordinator, two workers and two parameter servers, and what goes between them."""
    boxes = {
        "coordinator": Box("coordinator: your program", 0, 34, 720, 40, "data"),
        "servers": Box("parameter servers", 0, 246, 720, 84),
    }
    arrows = []
    for i in (0, 1):
        worker, part = f"worker {i}", f"ps {i}: its part of the variables"
        boxes[worker] = Box(f"{worker}\nat its own pace", 370 * i + 75, 124, 200, 52, "compute")
        boxes[f"ps {i}"] = Box(part, 370 * i + 14, 276, 322, 42, "server")
        arrows += [Arrow("coordinator", worker, "closures")]
        arrows += [Arrow("servers", worker, "values", offset=-55)]
        arrows += [Arrow(worker, "servers", "gradients", offset=55)]
    alt = (
        "Above: the coordinator, which runs your program and gives closures to worker 0 and "
        "worker 1. Each worker reads values from the parameter servers below and sends gradients "
        "to them, at its own pace. The servers are ps 0 and ps 1; each holds its part of the "
        "variables."
    )
    return diagram(
        boxes, arrows, title="Parameter servers: who sends what to whom", alt=alt, height_px=336
    )


def draw_data_service() -> Picture:
    """Draw a dispatcher, two data workers and two consumers of the tf.data service."""
    boxes = {
        "dispatcher": Box("dispatcher: who runs what", 200, 34, 320, 44, "data"),
        "pool": Box("data workers", 20, 136, 680, 84),
    }
    arrows = [Arrow("dispatcher", "pool", "to each its part of the source", dashed=True)]
    for i in (0, 1):
        work, left = f"data worker {i}: reads, parses, batches", 34 + 332 * i
        boxes[f"worker {i}"] = Box(work, left, 166, 320, 42, "server")
        boxes[f"consumer {i}"] = Box(f"consumer {i}: trains", left, 282, 320, 44, "compute")
        arrows += [Arrow("pool", f"consumer {i}", "batches from both")]
    alt = (
        "Above, the dispatcher assigns parts of the source to data worker 0 and data worker 1. "
        "Below, consumer 0 and consumer 1 train; each fetches batches from both data workers."
    )
    title = "The tf.data service: batches never pass through the dispatcher"
    return diagram(boxes, arrows, title=title, alt=alt, height_px=334)
