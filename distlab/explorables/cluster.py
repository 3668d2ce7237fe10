"""Two machines with a TF_CONFIG each to edit, and the cluster that they make or don't."""

from distlab.explorables.explorable import Explorable
from distlab.figures import Arrow, Box, Picture, diagram
from utils.tf_config import build_cluster, build_tf_configs, lint_together
from utils.tf_config.lint import examine
from utils.tf_config.rules import is_right
from utils.tf_config.spec import split_address

HOSTS = ("node-a", "node-b")


def edit_cluster(first: str | None = None, second: str | None = None) -> Explorable:
    """Show the cluster that two machines make, while the hand edits their TF_CONFIGs.

    `first` and `second` are what TF_CONFIG holds on node-a and node-b, right or wrong: the first
    machine's correct text on both, unless given. The browser finds the errors that
    `utils.tf_config.lint_together` finds.
    """
    right = build_tf_configs(build_cluster(len(HOSTS), hosts=HOSTS))["worker:0"]
    texts = [right.replace(', "task"', ',\n "task"') if t is None else t for t in (first, second)]
    data = {"label": "Two TF_CONFIGs, and the cluster that they make"}
    return Explorable("cluster", data, dict(zip("ab", texts)), _draw(texts))


def _draw(texts: list[str]) -> Picture:
    """Draw the two machines with the task that each says it is, linked if the cluster forms."""
    named = dict(zip(HOSTS, texts))
    configs = {host: examine(text)[0] for host, text in named.items()}
    forms = is_right(finding for _, finding in lint_together(named)) and not any(
        config and split_address(config.address or host)[0] in {*HOSTS} - {host}
        for host, config in configs.items()  # a linter doesn't know on which machine it is
    )
    boxes = {}
    for k, (host, config) in enumerate(configs.items()):
        says = f"says: I am {config.name}" if config else "has an error in its TF_CONFIG"
        boxes[host] = Box(
            f"{host}\n{says}", 20 + 380 * k, 40, 300, 60, "compute" if forms else "data"
        )
    title = "The cluster forms" if forms else "Two TF_CONFIGs, and no cluster"
    arrows = [Arrow(*HOSTS, "all-reduce", both=True)] if forms else []
    alt = f"{title}: " + "; ".join(box.text.replace("\n", " ") for box in boxes.values()) + "."
    return diagram(boxes, arrows, title=title, alt=alt, height_px=120)
