"""`distlab manifest`: files that run a program on several workers in Kubernetes or a cloud."""

import argparse
import sys
from dataclasses import fields

from distlab.cli.parser import Commands, add_command, add_program_options, declare

TARGETS = ("kubernetes", "vertex", "sagemaker", "azureml")
EPILOG = (
    "The files are the templates of examples/deploy, with comments, filled in: read and edit them. "
    "Manifests are checked against the targets' published schemas where one ships in a package. "
    "They haven't been run on a real cluster. Names like your-bucket are yours to fill in. A "
    "container's files are lost when it restarts, so keep checkpoints with --checkpoint-dir. Your "
    "program finds them in DISTLAB_CHECKPOINT_DIR. An option that a target can't take is named."
)

KERAS_PACKAGE = "keras_multi_worker"
IMAGE_LINES = {  # of the Dockerfile
    "installed": "",
    "legacy": "ENV TF_USE_LEGACY_KERAS=1\n",
    "patched": f"ENV PYTHONPATH=/app/{KERAS_PACKAGE}/startup\n",
}
OPTIONS = f"""
TARGET  {", ".join(TARGETS)}
--workers N=2  number of workers
--name NAME  name of the job [train-TIME]
--image IMAGE=registry.example/train:1  the container image that you build and push
--gpus N=0  GPUs per worker
--accelerator TYPE  type of these GPUs: a Kubernetes resource [nvidia.com/gpu], or Vertex AI's
    name [by machine type]
--checkpoint-dir STORAGE  keep checkpoints there: pvc:NAME[/PATH], s3://BUCKET[/PATH],
    gs://BUCKET[/PATH], or a datastore of Azure ML
--max-restarts N=3  restart up to N times after a failure
--independent  run workers that form no cluster; each restarts alone (kubernetes only)
--machine TYPE  machine type; on Azure ML the compute cluster's name
--kind job|tfjob=job  on kubernetes: an Indexed Job, or Kubeflow's TFJob
--keras NAME=installed  give the program this Keras, as in distlab run
--output DIR  write the files to this folder [print the manifest]
PROGRAM  a Python file in the image, such as train.py
"""


def add_parser(subparsers: Commands) -> None:
    parser = add_command(
        subparsers,
        "manifest",
        run,
        "write manifests for Kubernetes and clouds",
        "Write a manifest for Kubernetes, Vertex AI, SageMaker or Azure ML that runs a program on "
        "several workers, and a Dockerfile.",
        EPILOG,
    )
    parser.usage = "distlab manifest [options] TARGET PROGRAM [its options]"
    choices = {"kind": ("job", "tfjob"), "keras": tuple(IMAGE_LINES), "target": TARGETS}
    declare(parser, OPTIONS, **{name: {"choices": some} for name, some in choices.items()})
    add_program_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print the manifest, or write it with its Dockerfile to a folder; return 0."""
    from distlab.errors import CourseError
    from utils.engines.manifests import (
        ManifestSettings,
        describe_check,
        describe_submit,
        list_notes,
        make_manifest,
        write_files,
    )

    target = arguments.target
    if arguments.kind == "tfjob":
        if target != "kubernetes":
            raise CourseError(f"--kind tfjob needs the target kubernetes, got {target}.")
        target = "tfjob"
    options = vars(arguments)
    given = {
        each.name: options[each.name] for each in fields(ManifestSettings) if each.name in options
    }
    given["program"] = (arguments.program, *arguments.arguments)
    settings = ManifestSettings(
        **{name: value for name, value in given.items() if value is not None}
    )
    files = make_manifest(target, settings) | find_keras_files(arguments.keras)
    files["Dockerfile"] += IMAGE_LINES[arguments.keras]
    if arguments.output:
        for path in write_files(files, arguments.output):
            print(path)
    else:
        print(next(iter(files.values())), end="")
    for note in list_notes(target, settings):
        say(note)
    say(f"{describe_check(target)}; submit it with: {describe_submit(target, settings)}")
    return 0


def find_keras_files(choice: str) -> dict[str, str]:
    """Return the files that the image needs next to the program for this Keras, by name."""
    from utils import keras_multi_worker

    if choice != "patched":
        return {}
    folder = keras_multi_worker.STARTUP.parent
    names = ("__init__.py", "startup/sitecustomize.py")
    return {f"{KERAS_PACKAGE}/{name}": (folder / name).read_text() for name in names}


def say(text: str) -> None:
    print(f"distlab manifest: {text}", file=sys.stderr)
