"""Manifests: what a Kubernetes cluster or a cloud is given to run a program on several workers.

    files = make_manifest("kubernetes", ManifestSettings(workers=4, program=("train.py",)))

The files are the commented templates of `examples/deploy` (`deploy` here), filled in by Jinja:
the target's own, a Dockerfile and, where nothing else sets TF_CONFIG, `start.py`, which does so in
the container. This library runs none of them: it has no cluster and no account.
"""

import json
import re
import shlex
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from ..checks import check_choice, check_count, list_few
from ..errors import InputError

TEMPLATES = Path(__file__).parent / "deploy"
PORT = 2222
MAX_WORKERS = 1000
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
IMAGE = re.compile(  # host, with a dot or a port; path; tag; digest
    r"([\w-]+([.:][\w-]+)+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
MAX_NAME = 40  # a pod's host name adds its index, and may have 63 letters
PATH = r"(?:/(?P<path>[\w=-][\w.=-]*(?:/[\w=-][\w.=-]*)*))?"  # no step upwards
STORAGE = {  # what keeps checkpoints: how it is written, and read
    form: re.compile(pattern + PATH, re.ASCII)
    for form, pattern in {
        "pvc:NAME[/PATH]": "pvc:(?P<name>[a-z0-9][-a-z0-9.]*)",
        "s3://BUCKET[/PATH]": "s3://(?P<name>[a-z0-9][-a-z0-9.]+)",
        "gs://BUCKET[/PATH]": "gs://(?P<name>[a-z0-9][-a-z0-9._]+)",
        "azureml://datastores/NAME/paths/PATH": r"azureml://datastores/(?P<name>\w+)/paths",
    }.items()
}
CLAIM, S3, GS, DATASTORE = STORAGE
VERTEX_GPUS = {  # by the beginning of the machine type
    "n1": "NVIDIA_TESLA_T4",
    "a2-highgpu": "NVIDIA_TESLA_A100",
    "a2-megagpu": "NVIDIA_TESLA_A100",
    "a2-ultragpu": "NVIDIA_A100_80GB",
    "a3-highgpu": "NVIDIA_H100_80GB",
    "g2": "NVIDIA_L4",
}
ACCELERATOR = re.compile(r"[\w-]+(\.[\w-]+)*(/[\w.-]+)?", re.ASCII)


@dataclass(frozen=True)
class ManifestSettings:
    """The settings of a manifest: `program` and its options in `image`, once on each of `workers`.

    `gpus` are for each worker, and `accelerator` is their type in the target's words (a Kubernetes
    resource, a Vertex AI type). `machine` is the target's machine type. `max_restarts` is how often
    a failed run starts again, or one of its `independent` workers. `checkpoint_dir` names storage
    that outlives a container (see STORAGE_FORMS). The default `name` has the time in it. Raises
    InputError for values that no target accepts.

        >>> ManifestSettings(["train.py"], workers=4, gpus=1).max_restarts
        3
    """

    program: Sequence[str]
    workers: int = 2
    name: str = field(default_factory=lambda: time.strftime("train-%m%d-%H%M%S"))
    image: str = "registry.example/train:1"
    gpus: int = 0
    max_restarts: int = 3
    machine: str | None = None
    independent: bool = False
    accelerator: str | None = None
    checkpoint_dir: str | None = None

    def __post_init__(self) -> None:
        check_count("workers", self.workers, 1, MAX_WORKERS)
        check_count("gpus", self.gpus, 0, 64)
        check_count("max-restarts", self.max_restarts, 0, 1000)
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            allowed = f"at most {MAX_NAME} small letters, digits and -, a letter first"
            raise InputError(f"name must be {allowed}, got {self.name!r}. Try train-1.")
        if not IMAGE.fullmatch(self.image):
            example = "such as registry.example/train:1"
            raise InputError(f"image must be an image's name, {example}, got {self.image!r}.")
        if not self.program or not self.program[0]:
            raise InputError("Nothing to run. Name a program, such as train.py.")
        if self.accelerator is not None and not ACCELERATOR.fullmatch(self.accelerator):
            raise InputError(
                "accelerator must be a name such as nvidia.com/gpu (Kubernetes) or NVIDIA_L4 "
                f"(Vertex AI), got {self.accelerator!r}."
            )


@dataclass(frozen=True)
class Platform:
    """A manifest's target: its file, how it is submitted, and what its tests check.

    `checked` is "" where no published schema ships in a package. `storage` has each form that
    checkpoints' storage may have, with the folder where the program finds it. `ignores` says of
    settings that the target can't take what happens instead.
    """

    file: str
    submit: str
    checked: str
    storage: Mapping[str, str]
    ignores: Mapping[str, str] = field(default_factory=dict)
    needs_start: bool = False


ON_KUBERNETES = {CLAIM: "/checkpoints", GS: "{url}", S3: "{url}"}
COME_WITH_MACHINE = "ignored, as GPUs come with the machine type. Name one with --machine"
COME_WITH_CLUSTER = COME_WITH_MACHINE.replace("machine type", "compute cluster")
NO_RESTART = "ignored, as a worker that dies ends the job. Submit it again"
TARGETS = {
    "kubernetes": Platform(
        "job.yaml",
        "kubectl apply -f job.yaml",
        "the schemas of Kubernetes in kubernetes-validate",
        ON_KUBERNETES,
        needs_start=True,
    ),
    "tfjob": Platform(
        "tfjob.yaml",
        "kubectl apply -f tfjob.yaml",
        "the TFJob definition of Training Operator 1.9",
        ON_KUBERNETES,
    ),
    "vertex": Platform(
        "vertex.yaml",
        "gcloud ai custom-jobs create --region=REGION --display-name={name} --config=vertex.yaml",
        "the CustomJobSpec type in google-cloud-aiplatform",
        {GS: "/gcs/{name}/{path}"},
        {"max_restarts": "ignored: Vertex AI restarts all workers with one, and takes no limit"},
    ),
    "sagemaker": Platform(
        "sagemaker.yaml",
        "aws sagemaker create-training-job --cli-input-yaml file://sagemaker.yaml",
        "the CreateTrainingJob model in botocore",
        {S3: "/opt/ml/checkpoints"},
        {"accelerator": COME_WITH_MACHINE, "max_restarts": NO_RESTART},
        needs_start=True,
    ),
    "azureml": Platform(
        "azureml.yaml",
        "az ml job create --file azureml.yaml",
        "",
        {DATASTORE: "${{{{outputs.checkpoints}}}}"},
        {
            "gpus": COME_WITH_CLUSTER,
            "accelerator": COME_WITH_CLUSTER,
            "max_restarts": NO_RESTART,
        },
    ),
}


def make_manifest(target: str, settings: ManifestSettings) -> dict[str, str]:
    """Return the files that run `settings` on `target`, by name, the manifest first.

    `target` is a key of TARGETS. Nothing is submitted. Raises InputError for settings that the
    target can't run, and if Jinja isn't installed.

        files = make_manifest("kubernetes", ManifestSettings(["train.py"], workers=2))
        print(list(files))  # ['job.yaml', 'Dockerfile', '.dockerignore', 'start.py']
    """
    platform = find_target(target)
    if settings.independent and target != "kubernetes":
        raise InputError(f"independent needs the target kubernetes, got {target}.")
    values = {
        **asdict(settings),
        **_find_storage(target, settings),
        "accelerator": _choose_accelerator(target, settings),
        "program": ["python", *settings.program],
        "notes": list_notes(target, settings),
        "submit": describe_submit(target, settings),
        "port": PORT,
    }
    names = [platform.file, "Dockerfile", ".dockerignore"]
    if platform.needs_start and not settings.independent:
        names.append("start.py")
    return {name: _fill(name, values) for name in names}


def _fill(name: str, values: Mapping[str, Any]) -> str:
    """Return a template with `values` in it. Lines of Jinja begin with #%, a comment in YAML."""
    try:
        import jinja2
    except ImportError:
        raise InputError("Manifests need Jinja. Run: pip install jinja2") from None
    environment = jinja2.Environment(
        line_statement_prefix="#%",
        keep_trailing_newline=True,
        undefined=jinja2.StrictUndefined,
        autoescape=False,
    )
    environment.filters |= {"json": json.dumps, "shell": shlex.join}
    return environment.from_string((TEMPLATES / name).read_text()).render(values)


def _find_storage(target: str, settings: ManifestSettings) -> dict[str, str]:
    """Return the place of the checkpoints, and the folder where the program finds them."""
    url, forms = settings.checkpoint_dir, TARGETS[target].storage
    if url is None:
        return {"claim": "", "path": "", "storage": "", "folder": ""}
    for form, folder in forms.items():
        if found := STORAGE[form].fullmatch(url):
            parts = {"name": found["name"], "path": found["path"] or "", "url": url}
            return {
                "claim": parts["name"] if form == CLAIM else "",
                "path": parts["path"],
                "storage": url,
                "folder": folder.format(**parts).rstrip("/"),
            }
    raise InputError(f"checkpoint-dir on {target} must be {' or '.join(forms)}, got {url!r}.")


def _choose_accelerator(target: str, settings: ManifestSettings) -> str:
    """Return the kind of GPU in the target's words. Raises InputError if it isn't known."""
    if settings.accelerator and not settings.gpus:
        raise InputError("accelerator needs a number of GPUs. Add --gpus 1.")
    if target == "sagemaker" and settings.gpus > 1 and not settings.machine:
        raise InputError(
            f"gpus={settings.gpus} on SageMaker needs a machine type with that many. Add "
            "--machine, such as ml.g4dn.12xlarge with 4."
        )
    if settings.accelerator or target != "vertex":
        return settings.accelerator or "nvidia.com/gpu"
    machine = settings.machine or "n1"
    kinds = [kind for start, kind in VERTEX_GPUS.items() if machine.startswith(f"{start}-")]
    if settings.gpus and settings.machine and not kinds:
        raise InputError(
            f"accelerator is needed for machine {machine}. Add --accelerator, such as NVIDIA_L4."
        )
    return kinds[0] if kinds else VERTEX_GPUS["n1"]


def list_notes(target: str, settings: ManifestSettings) -> list[str]:
    """Return what a user has to know of these settings on this target, one sentence each."""
    given = asdict(settings)
    notes = [
        f"--{name.replace('_', '-')} {given[name]}: {why}."
        for name, why in find_target(target).ignores.items()
        if given[name]
    ]
    if settings.max_restarts and settings.checkpoint_dir is None:
        forms = " or ".join(TARGETS[target].storage)
        notes.append(
            "WITHOUT --checkpoint-dir EVERY RESTART BEGINS AT STEP 0, as a container's files "
            f"vanish with it. Keep checkpoints in {forms}."
        )
    if (settings.checkpoint_dir or "").startswith("s3:") and target in ("kubernetes", "tfjob"):
        notes.append("TensorFlow itself doesn't read s3://. Your program has to, or mount a claim.")
    return notes


def find_target(name: str) -> Platform:
    return TARGETS[check_choice("target", name, TARGETS)]


def describe_submit(target: str, settings: ManifestSettings) -> str:
    """Return the command line that submits a manifest."""
    return find_target(target).submit.format(name=settings.name)


def describe_check(target: str) -> str:
    """Return in one sentence what is known of a target's manifest."""
    checked = find_target(target).checked
    if not checked:
        return (
            "not checked, as no package ships its schema, and not run on a real cluster, so read "
            "it first"
        )
    return f"checked against {checked}, not run on a real cluster"


def write_files(files: dict[str, str], folder: str) -> list[Path]:
    """Write them into `folder`; raises InputError where one is there already, or can't be."""
    paths = [Path(folder, name) for name in files]
    there = [str(path) for path in paths if path.exists()]
    if there:
        words = "exists" if len(there) == 1 else "exist"
        raise InputError(f"{list_few(there)} already {words}. Name another folder.")
    try:
        for path, text in zip(paths, files.values()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise InputError(
            f"output must be a writable folder, got {folder} ({error.strerror})."
        ) from None
    return paths
