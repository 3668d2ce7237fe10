"""Manifests: what a Kubernetes cluster or a cloud is given to run a program on several workers.

    files = make_manifest("kubernetes", ManifestSettings(workers=4, program=("train.py",)))

Each target gets its own file, a Dockerfile and, where nothing else sets TF_CONFIG, `start.py`,
which does so in the container. They are made by the targets' published schemas. This library
runs none of them: it has no cluster and no account.
"""

import json
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..checks import check_count
from ..errors import InputError

PORT = 2222
MAX_WORKERS = 1000
TRAINING_OPERATOR = "kubeflow.org/v1"
NAME = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
IMAGE = re.compile(  # host, with a dot or a port; path; tag; digest
    r"([\w-]+([.:][\w-]+)+/)?[a-z0-9]+([._/-]+[a-z0-9]+)*(:\w[\w.-]{0,127})?(@sha256:[0-9a-f]{64})?",
    re.ASCII,
)
MAX_NAME = 40  # a pod's host name adds its index, and may have 63 letters
TENSORFLOW = "2.21.0"


@dataclass(frozen=True)
class ManifestSettings:
    """What to run: `program` and its options in `image`, once on each of `workers`.

    `gpus` are those of one worker, `max_restarts` how often a failed run starts again, or one of
    its `independent` workers. Raises InputError for what no target would take.
    """

    program: Sequence[str]
    workers: int = 2
    name: str = "train"
    image: str = "registry.example/train:1"
    gpus: int = 0
    max_restarts: int = 3
    machine: str | None = None
    independent: bool = False

    def __post_init__(self) -> None:
        check_count("workers", self.workers, 1, MAX_WORKERS)
        check_count("gpus", self.gpus, 0, 64)
        check_count("max-restarts", self.max_restarts, 0, 1000)
        if not NAME.fullmatch(self.name) or len(self.name) > MAX_NAME:
            allowed = f"at most {MAX_NAME} small letters, digits and -, a letter first"
            raise InputError(f"name {self.name!r}: give {allowed}")
        if not IMAGE.fullmatch(self.image):
            cure = "write one such as registry.example/train:1"
            raise InputError(f"image {self.image!r}: is no image's name; {cure}")
        if not self.program or not self.program[0]:
            raise InputError("nothing to run: name a program, such as train.py")


def make_job(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return a headless Service and an Indexed Job of Kubernetes.

    Pods find each other as NAME-INDEX.NAME, as the Service publishes them before they are
    ready. One pod's failure fails its index; the run as a whole goes on from its checkpoint.
    """
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": settings.name},
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": {"job-name": settings.name},
            "ports": [{"name": "grpc", "port": PORT}],
        },
    }
    container = _make_container(settings, "worker", ["python", "start.py", *settings.program])
    container["env"] = [{"name": "DISTLAB_HOSTS", "value": ",".join(_name_pods(settings))}]
    pod = {"subdomain": settings.name, "restartPolicy": "OnFailure", "containers": [container]}
    backoff = settings.max_restarts * settings.workers
    return [service, _make_indexed(settings, pod, backoffLimit=backoff)]


def make_independent_job(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return an Indexed Job of Kubernetes whose pods don't know each other.

    Each index has its own restarts, and one that has used them up leaves the others alone
    (`backoffLimitPerIndex`, in every Kubernetes since 1.33).
    """
    container = _make_container(settings, "worker", ["python", *settings.program])
    del container["ports"]
    path = "metadata.annotations['batch.kubernetes.io/job-completion-index']"
    container["env"] = [
        {"name": "DISTLAB_TASK_INDEX", "valueFrom": {"fieldRef": {"fieldPath": path}}},
        {"name": "DISTLAB_TASK_COUNT", "value": str(settings.workers)},
    ]
    pod = {"restartPolicy": "Never", "containers": [container]}
    limits = {"backoffLimitPerIndex": settings.max_restarts, "maxFailedIndexes": settings.workers}
    return [_make_indexed(settings, pod, **limits)]


def _make_indexed(settings: ManifestSettings, pod: dict[str, Any], **limits: int) -> dict[str, Any]:
    """Return an Indexed Job with a pod for each worker; `limits` say how often one may fail."""
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": settings.name},
        "spec": {
            "completionMode": "Indexed",
            "completions": settings.workers,
            "parallelism": settings.workers,
            **limits,
            "template": {"metadata": {"labels": {"app": settings.name}}, "spec": pod},
        },
    }


def _name_pods(settings: ManifestSettings) -> list[str]:
    return [f"{settings.name}-{index}.{settings.name}:{PORT}" for index in range(settings.workers)]


def _make_container(
    settings: ManifestSettings, name: str, command: Sequence[str]
) -> dict[str, Any]:
    container = {
        "name": name,
        "image": settings.image,
        "command": list(command),
        "ports": [{"name": "grpc", "containerPort": PORT}],
    }
    if settings.gpus:
        container["resources"] = {"limits": {"nvidia.com/gpu": settings.gpus}}
    return container


def make_tfjob(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return a TFJob of Kubeflow's Training Operator v1, which sets TF_CONFIG in each pod.

    Its container has to be named tensorflow and its port tfjob-port. Kubeflow Trainer v2
    has no runtime for TensorFlow.
    """
    container = _make_container(settings, "tensorflow", ["python", *settings.program])
    container["ports"][0]["name"] = "tfjob-port"
    replicas = {
        "replicas": settings.workers,
        "restartPolicy": "OnFailure",
        "template": {"spec": {"containers": [container]}},
    }
    policy = {"cleanPodPolicy": "Running", "backoffLimit": settings.max_restarts * settings.workers}
    return [
        {
            "apiVersion": TRAINING_OPERATOR,
            "kind": "TFJob",
            "metadata": {"name": settings.name},
            "spec": {"runPolicy": policy, "tfReplicaSpecs": {"Worker": replicas}},
        }
    ]


def make_vertex(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return a CustomJob of Vertex AI, which sets TF_CONFIG itself: pool 0 is the chief."""
    machine: dict[str, Any] = {"machineType": settings.machine or "n1-standard-4"}
    if settings.gpus:
        machine |= {"acceleratorType": "NVIDIA_TESLA_T4", "acceleratorCount": settings.gpus}
    pools = [
        {
            "machineSpec": machine,
            "replicaCount": str(count),
            "containerSpec": {
                "imageUri": settings.image,
                "command": ["python", *settings.program],
            },
        }
        for count in (1, settings.workers - 1)
        if count
    ]
    scheduling = {"restartJobOnWorkerRestart": settings.max_restarts > 0}
    spec = {"workerPoolSpecs": pools, "scheduling": scheduling}
    return [{"displayName": settings.name, "jobSpec": spec}]


def make_sagemaker(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return a CreateTrainingJob request of SageMaker; `start.py` reads its list of hosts."""
    if settings.gpus > 1 and not settings.machine:
        cure = "name a machine type that has as many, such as ml.g4dn.12xlarge with 4"
        raise InputError(f"gpus {settings.gpus}: on SageMaker they come with the machine; {cure}")
    default = "ml.g4dn.xlarge" if settings.gpus else "ml.m5.xlarge"
    retries = {"RetryStrategy": {"MaximumRetryAttempts": min(30, settings.max_restarts)}}
    return [
        {
            "TrainingJobName": settings.name,
            "RoleArn": "arn:aws:iam::123456789012:role/your-sagemaker-role",
            "AlgorithmSpecification": {
                "TrainingImage": settings.image,
                "TrainingInputMode": "File",
                "ContainerEntrypoint": ["python", "start.py"],
                "ContainerArguments": list(settings.program),
            },
            "OutputDataConfig": {"S3OutputPath": "s3://your-bucket/output"},
            "CheckpointConfig": {"S3Uri": "s3://your-bucket/checkpoints"},
            "ResourceConfig": {
                "InstanceType": settings.machine or default,
                "InstanceCount": settings.workers,
                "VolumeSizeInGB": 50,
            },
            "StoppingCondition": {"MaxRuntimeInSeconds": 86400},
            **(retries if settings.max_restarts else {}),
        }
    ]


def make_azureml(settings: ManifestSettings) -> list[dict[str, Any]]:
    """Return a command job of Azure ML, which sets TF_CONFIG itself."""
    return [
        {
            "$schema": "https://azuremlschemas.azureedge.net/latest/commandJob.schema.json",
            "type": "command",
            "display_name": settings.name,
            "command": shlex.join(("python", *settings.program)),  # a shell reads it
            "environment": {"image": settings.image},
            "compute": f"azureml:{settings.machine or 'your-cluster'}",
            "distribution": {"type": "tensorflow", "worker_count": settings.workers},
            "resources": {"instance_count": settings.workers},
        }
    ]


START = '''"""Set TF_CONFIG from what this container is told, then run the program that is named."""

import json
import os
import sys

PORT = {port}


def find_place():
    """Return the addresses of all workers, and which of them this is."""
    if "JOB_COMPLETION_INDEX" in os.environ:  # an Indexed Job of Kubernetes
        hosts = os.environ["DISTLAB_HOSTS"].split(",")
        return hosts, int(os.environ["JOB_COMPLETION_INDEX"])
    path = os.environ.get("RESOURCE_CONFIG", "/opt/ml/input/config/resourceconfig.json")
    with open(path) as file:  # SageMaker
        told = json.load(file)
    hosts = sorted(told["hosts"], key=lambda name: int(name.rpartition("-")[2]))
    return [f"{{host}}:{{PORT}}" for host in hosts], hosts.index(told["current_host"])


workers, index = find_place()
task = {{"type": "worker", "index": index}}
os.environ["TF_CONFIG"] = json.dumps({{"cluster": {{"worker": workers}}, "task": task}})
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
'''
DOCKERFILE = """\
FROM python:3.12-slim
RUN pip install --no-cache-dir '{package}=={version}'
WORKDIR /app
COPY . .
# No CMD: the manifest says what runs. The port is TensorFlow's, open while the program runs.
EXPOSE {port}
"""
Make = Callable[[ManifestSettings], list[dict[str, Any]]]


@dataclass(frozen=True)
class Platform:
    """Where a manifest goes: its file, how it is submitted, and what its tests check it by.

    `checked` is "" where no published schema ships in a package.
    """

    make: Make
    file: str
    submit: str
    checked: str
    needs_start: bool = False


TARGETS = {
    "kubernetes": Platform(
        make_job,
        "job.yaml",
        "kubectl apply -f job.yaml",
        "the schemas of Kubernetes in kubernetes-validate",
        True,
    ),
    "tfjob": Platform(
        make_tfjob,
        "tfjob.yaml",
        "kubectl apply -f tfjob.yaml",
        "the TFJob definition of Training Operator 1.9",
    ),
    "vertex": Platform(
        make_vertex,
        "vertex.yaml",
        "gcloud beta ai custom-jobs create: pass jobSpec as --config",
        "the CustomJob type in google-cloud-aiplatform",
    ),
    "sagemaker": Platform(
        make_sagemaker,
        "sagemaker.json",
        "aws sagemaker create-training-job --cli-input-json file://sagemaker.json",
        "the CreateTrainingJob model in botocore",
        True,
    ),
    "azureml": Platform(make_azureml, "azureml.yaml", "az ml job create --file azureml.yaml", ""),
}


def make_manifest(target: str, settings: ManifestSettings) -> dict[str, str]:
    """Return the files for a target, by name: the manifest first. Raises InputError."""
    chosen = find_target(target)
    if settings.independent and target != "kubernetes":
        raise InputError(f"independent: only for kubernetes, got {target}")
    make = make_independent_job if settings.independent else chosen.make
    documents = make(settings)
    if chosen.file.endswith(".json"):
        text = json.dumps(documents[0], indent=2) + "\n"
    else:
        text = "---\n".join(f"{format_yaml(document)}\n" for document in documents)
    package = "tensorflow[and-cuda]" if settings.gpus else "tensorflow"
    image = DOCKERFILE.format(package=package, version=TENSORFLOW, port=PORT)
    files = {chosen.file: text, "Dockerfile": image}
    if chosen.needs_start and not settings.independent:
        files["start.py"] = START.format(port=PORT)
    return files


def find_target(name: str) -> Platform:
    if name not in TARGETS:
        raise InputError(f"target {name!r}: choose from {', '.join(TARGETS)}")
    return TARGETS[name]


def describe_check(target: str) -> str:
    """Return in one sentence what is known of a target's manifest."""
    checked = find_target(target).checked
    if not checked:
        return "unchecked: no schema of it ships in a package; read it before you submit it"
    return f"checked against {checked}, not run"


def write_files(files: dict[str, str], folder: str) -> list[Path]:
    """Write them into `folder`; raises InputError where one is there already, or cannot be."""
    paths = [Path(folder, name) for name in files]
    there = [str(path) for path in paths if path.exists()]
    if there:
        raise InputError(f"{', '.join(there)}: there already; name another folder")
    try:
        for path, text in zip(paths, files.values()):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
    except OSError as error:
        raise InputError(f"output {folder}: cannot be written ({error.strerror})") from None
    return paths


def format_yaml(value: Any, indent: str = "") -> str:
    """Return plain data as YAML: mappings and lists in lines of their own, scalars as in JSON."""
    lines = []
    pairs = value.items() if isinstance(value, dict) else [(None, item) for item in value]
    for key, item in pairs:
        head = (
            f"{indent}- " if key is None else f"{indent}{json.dumps(key) if '$' in key else key}:"
        )
        if isinstance(item, (dict, list)) and item:
            below = format_yaml(item, indent + "  ")
            lines.append(head + below.lstrip() if key is None else f"{head}\n{below}")
        else:
            lines.append(f"{head}{'' if key is None else ' '}{json.dumps(item)}")
    return "\n".join(lines)
