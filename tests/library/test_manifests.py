"""Manifests: each checked strictly against the schema that its target publishes."""

import gzip
import importlib
import json
import os
from pathlib import Path

import pytest
from child_programs import run_distlab, run_python
from needs import need_packages

from utils.engines.manifests import (
    TARGETS,
    ManifestSettings,
    describe_check,
    list_notes,
    make_manifest,
    write_files,
)
from utils.errors import InputError
from utils.tf_config import parse_tf_config

VENDORED = Path(__file__).parents[1] / "vendored" / "tfjob"
ALL = [
    {"program": ("train.py", "--epochs", "3"), "workers": 4, "name": "digits", "gpus": 1},
    {"program": ("train.py",), "workers": 1, "max_restarts": 0},
]
STORAGE = {  # per target, and where the program finds it
    "kubernetes": ("pvc:shared/run-1", "/checkpoints"),
    "tfjob": ("pvc:shared/run-1", "/checkpoints"),
    "vertex": ("gs://bucket/run-1", "/gcs/bucket/run-1"),
    "sagemaker": ("s3://bucket/run-1", "/opt/ml/checkpoints"),
    "azureml": ("azureml://datastores/blobs/paths/run-1", "${{outputs.checkpoints}}"),
}


def make_settings(target, row):
    """Return the settings of a row of ALL; those with GPUs keep checkpoints."""
    kept = {"checkpoint_dir": STORAGE[target][0]} if "gpus" in ALL[row] else {}
    return ManifestSettings(**ALL[row], **kept)


def need(module):
    """Return the module; skip without it."""
    need_packages("the manifests' checkers", module)
    return importlib.import_module(module)


def load(target, settings):
    """Return the documents of a target's manifest, read back from its text."""
    yaml = need("yaml")
    if isinstance(settings, int):
        settings = make_settings(target, settings)
    return list(yaml.safe_load_all(next(iter(make_manifest(target, settings).values()))))


@pytest.mark.parametrize("row", (0, 1))
def test_kubernetes_takes_the_job_and_its_service(row):
    checker = need("kubernetes_validate")
    service, job = load("kubernetes", row)
    for document in (service, job):
        checker.validate(document, "1.37", strict=True)
    broken = {**job, "spec": {**job["spec"], "completionsMode": "Indexed"}}
    with pytest.raises(checker.ValidationError):
        checker.validate(broken, "1.37", strict=True)


def test_independent_pods_have_a_number_and_their_own_restarts():
    checker = need("kubernetes_validate")
    settings = ManifestSettings(("predict.py",), workers=4, max_restarts=2, independent=True)
    assert "start.py" not in make_manifest("kubernetes", settings)
    [job] = load("kubernetes", settings)
    checker.validate(job, "1.37", strict=True)
    spec = job["spec"]
    assert (spec["backoffLimitPerIndex"], spec["maxFailedIndexes"]) == (2, 4)
    [container] = spec["template"]["spec"]["containers"]
    assert container["args"] == ["python", "predict.py"] and "ports" not in container
    index, count, _ = container["env"]
    assert "job-completion-index" in index["valueFrom"]["fieldRef"]["fieldPath"]
    assert count == {"name": "DISTLAB_TASK_COUNT", "value": "4"}
    with pytest.raises(InputError, match="independent needs the target kubernetes, got vertex"):
        make_manifest("vertex", settings)


def test_pods_find_each_other_by_what_the_service_publishes():
    service, job = load("kubernetes", 0)
    pod = job["spec"]["template"]["spec"]
    assert service["spec"]["clusterIP"] == "None" and service["spec"]["publishNotReadyAddresses"]
    assert pod["subdomain"] == service["metadata"]["name"] == "digits"
    assert service["spec"]["selector"] == {"job-name": job["metadata"]["name"]}
    assert job["spec"]["completionMode"] == "Indexed"
    assert job["spec"]["completions"] == job["spec"]["parallelism"] == 4
    hosts = pod["containers"][0]["env"][0]["value"].split(",")
    assert hosts == [f"digits-{index}.digits:2222" for index in range(4)]


def run_start(tmp_path, files, environment):
    """Run `start.py` as a container would, with a program that prints its TF_CONFIG."""
    (tmp_path / "start.py").write_text(files["start.py"])
    (tmp_path / "show.py").write_text(
        "import os, sys\nprint(os.environ['TF_CONFIG'], sys.argv[1:])"
    )
    words = ("start.py", "show.py", "--epochs", "3")
    done = run_python(*words, cwd=tmp_path, variables=environment, status=0)
    text, _, arguments = done.stdout.strip().rpartition(" ['")
    assert arguments == "--epochs', '3']"
    return parse_tf_config(text)


def test_tf_config_comes_from_the_completion_index(tmp_path):
    _, job = load("kubernetes", 0)
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["args"] == ["python", "start.py", "train.py", "--epochs", "3"]
    told = read_variables(container["env"])
    files = make_manifest("kubernetes", make_settings("kubernetes", 0))
    config = run_start(tmp_path, files, {**told, "JOB_COMPLETION_INDEX": "2"})
    assert (config.job, config.index) == ("worker", 2)
    assert config.address == "digits-2.digits:2222" and len(config.cluster.worker) == 4


def test_tf_config_comes_from_sagemakers_list_of_hosts(tmp_path):
    hosts = [f"algo-{number}" for number in (1, 10, 2)]
    (tmp_path / "told.json").write_text(json.dumps({"current_host": "algo-10", "hosts": hosts}))
    files = make_manifest("sagemaker", make_settings("sagemaker", 0))
    config = run_start(tmp_path, files, {"RESOURCE_CONFIG": str(tmp_path / "told.json")})
    assert config.cluster.worker == ("algo-1:2222", "algo-2:2222", "algo-10:2222")
    assert config.index == 2


@pytest.mark.parametrize("row", (0, 1))
def test_the_training_operator_takes_the_tfjob(row):
    schema = need("jsonschema")
    definition = need("yaml").safe_load(
        gzip.open(VENDORED / "kubeflow.org_tfjobs.yaml.gz", "rt").read()
    )
    [version] = [v for v in definition["spec"]["versions"] if v["name"] == "v1"]
    rules = forbid_unknown(version["schema"]["openAPIV3Schema"])
    [job] = load("tfjob", row)
    schema.validate(job, rules)
    job["spec"]["tfReplicaSpec"] = {}
    with pytest.raises(schema.ValidationError):
        schema.validate(job, rules)
    assert (VENDORED / "LICENSE").read_text().strip().startswith("Apache License")


def forbid_unknown(rules):
    """Return an OpenAPI schema that takes no field it doesn't name."""
    if not isinstance(rules, dict):
        return rules
    known = {name: _forbid_in(name, value) for name, value in rules.items()}
    names = known.get("properties")
    if names and "additionalProperties" not in known and "metadata" not in rules:
        known["additionalProperties"] = False
    if known.get("x-kubernetes-int-or-string"):
        known.pop("type", None)
    return known


def _forbid_in(name, value):
    if name == "properties":
        return {key: forbid_unknown(rules) for key, rules in value.items()}
    return forbid_unknown(value) if name in ("items", "additionalProperties") else value


@pytest.mark.parametrize("row", (0, 1))
def test_sagemaker_takes_the_request(row):
    need("botocore")
    from botocore.session import Session
    from botocore.validate import ParamValidator

    model = Session().get_service_model("sagemaker").operation_model("CreateTrainingJob")
    [request] = load("sagemaker", row)
    report = ParamValidator().validate(request, model.input_shape)
    assert not report.has_errors(), report.generate_report()
    request["ResourceConfig"]["InstanceCounts"] = 3
    assert ParamValidator().validate(request, model.input_shape).has_errors()
    assert_within(request, model.input_shape)


def assert_within(value, shape):
    """Assert what botocore leaves to the service: lengths, ranges, patterns and choices."""
    import re

    limits = shape.metadata
    if shape.type_name == "structure":
        for name, item in value.items():
            if name in shape.members:
                assert_within(item, shape.members[name])
    elif shape.type_name == "list":
        assert limits.get("min", 0) <= len(value) <= limits.get("max", 10**9)
        for item in value:
            assert_within(item, shape.member)
    elif shape.type_name == "string":
        assert limits.get("min", 0) <= len(value) <= limits.get("max", 10**9), value
        assert not shape.enum or value in shape.enum, value
        assert "pattern" not in limits or re.fullmatch(limits["pattern"], value), value
    elif shape.type_name == "integer":
        assert limits.get("min", 0) <= value <= limits.get("max", 10**12), value


@pytest.mark.parametrize("row", (0, 1))
def test_vertex_takes_the_custom_job(row):
    need("google.cloud.aiplatform_v1")
    from google.cloud.aiplatform_v1.types import CustomJobSpec
    from google.protobuf import json_format

    [job] = load("vertex", row)
    parsed = json_format.ParseDict(job, CustomJobSpec.pb(CustomJobSpec()))
    counts = [int(pool.replica_count) for pool in parsed.worker_pool_specs]
    assert sum(counts) == ALL[row]["workers"] and counts[0] == 1
    job["workerPools"] = []
    with pytest.raises(json_format.ParseError):
        json_format.ParseDict(job, CustomJobSpec.pb(CustomJobSpec()))


def test_what_has_no_schema_is_named_as_unchecked():
    unchecked = [name for name in TARGETS if describe_check(name).startswith("not checked")]
    assert unchecked == ["azureml"]
    assert all("not run on a real cluster" in describe_check(name) for name in TARGETS)
    for target in TARGETS:
        head = next(iter(make_manifest(target, make_settings(target, 0)).values()))
        assert "not run on a real cluster" in head.lower()
    [job] = load("azureml", 0)
    assert job["distribution"] == {"type": "tensorflow", "worker_count": 4}
    assert job["resources"]["instance_count"] == 4


def distlab(*words, status=0):
    return run_distlab("manifest", *words, status=status)


def test_the_command_prints_or_writes_the_files(tmp_path):
    options = ("--workers", "4", "--name", "digits", "--gpus", "1", "--checkpoint-dir", "pvc:a")
    done = distlab("kubernetes", *options, "train.py", "--epochs", "3")
    settings = ManifestSettings(**ALL[0], checkpoint_dir="pvc:a")
    assert done.stdout == make_manifest("kubernetes", settings)["job.yaml"]
    (said,) = done.stderr.splitlines()
    assert "checked against the schemas of Kubernetes in kubernetes-validate, not run" in said
    folder = tmp_path / "files"
    done = distlab("kubernetes", "--kind", "tfjob", "--output", str(folder), "train.py")
    assert "WITHOUT --checkpoint-dir EVERY RESTART BEGINS AT STEP 0" in done.stderr
    assert sorted(os.listdir(folder)) == [".dockerignore", "Dockerfile", "tfjob.yaml"]
    for keras, line in (("legacy", "ENV TF_USE_LEGACY_KERAS=1"), ("patched", "/startup")):
        there = tmp_path / keras
        distlab("vertex", "--keras", keras, "--output", str(there), "train.py")
        assert (there / "Dockerfile").read_text().rstrip().endswith(line)
    assert (there / "keras_multi_worker/startup/sitecustomize.py").is_file()
    done = distlab("sagemaker", "--output", str(folder), "train.py", status=2)
    assert len(done.stderr.splitlines()) == 1 and ".dockerignore already exist" in done.stderr


@pytest.mark.parametrize(
    "image",
    [
        "tf",
        "tf:1",
        "gcr.io/my-project/tf_train:v1.2",
        "localhost:5000/x",
        "Host.example:5000/a/b__c",
        "1234.dkr.ecr.eu-west-1.amazonaws.com/train@sha256:" + "a" * 64,
    ],
)
def test_images_of_every_registry_are_taken(image):
    assert ManifestSettings(("train.py",), image=image).image == image


def test_words_gpus_and_restarts_reach_the_container():
    [job] = load("azureml", ManifestSettings(("train.py", "--name", "a b", "$HOME")))
    assert job["command"] == "python train.py --name 'a b' '$HOME'"
    for gpus, package in ((0, "'tensorflow==2."), (1, "'tensorflow[and-cuda]==2.")):
        files = make_manifest("kubernetes", ManifestSettings(("train.py",), gpus=gpus))
        assert f"pip install --no-cache-dir {package}" in files["Dockerfile"]
    assert "RetryStrategy" not in load("sagemaker", 1)[0]
    assert not load("vertex", 1)[0]["scheduling"]["restartJobOnWorkerRestart"]


def read_variables(pairs):
    return {pair["name"]: pair["value"] for pair in pairs}


def test_checkpoints_outlive_a_container_on_every_target():
    for target in ("kubernetes", "tfjob"):
        spec = load(target, 0)[-1]["spec"]
        template = spec.get("template") or spec["tfReplicaSpecs"]["Worker"]["template"]
        pod = template["spec"]
        [container] = pod["containers"]
        mounts = {each["name"]: each for each in container["volumeMounts"]}
        volumes = {each["name"]: each for each in pod["volumes"]}
        assert volumes["checkpoints"]["persistentVolumeClaim"] == {"claimName": "shared"}
        assert volumes["shared-memory"]["emptyDir"]["medium"] == "Memory"
        assert mounts["shared-memory"]["mountPath"] == "/dev/shm"
        folder = read_variables(container["env"])["DISTLAB_CHECKPOINT_DIR"]
        where = {"mountPath": STORAGE[target][1], "subPath": "run-1"}
        assert mounts["checkpoints"] == {"name": "checkpoints", **where}
        assert folder == STORAGE[target][1]
    [job] = load("vertex", 0)
    assert job["baseOutputDirectory"] == {"outputUriPrefix": STORAGE["vertex"][0]}
    told = [read_variables(p["containerSpec"]["env"]) for p in job["workerPoolSpecs"]]
    assert told == [{"DISTLAB_CHECKPOINT_DIR": STORAGE["vertex"][1]}] * 2
    [request] = load("sagemaker", 0)
    url, folder = STORAGE["sagemaker"]
    assert request["CheckpointConfig"] == {"S3Uri": url, "LocalPath": folder}
    assert request["Environment"] == {"DISTLAB_CHECKPOINT_DIR": folder}
    [job] = load("azureml", 0)
    assert job["outputs"]["checkpoints"]["path"] == STORAGE["azureml"][0]
    assert job["command"].startswith("DISTLAB_CHECKPOINT_DIR=${{outputs.checkpoints}} python ")


def test_what_a_target_cannot_take_is_named():
    given = {"gpus": 8, "machine": "a-big-one", "accelerator": "NVIDIA_L4"}
    settings = ManifestSettings(("train.py",), **given)
    named = {
        target: [note.split()[0] for note in list_notes(target, settings)] for target in TARGETS
    }
    assert named == {
        "kubernetes": ["WITHOUT"],
        "tfjob": ["WITHOUT"],
        "vertex": ["--max-restarts", "WITHOUT"],
        "sagemaker": ["--accelerator", "--max-restarts", "WITHOUT"],
        "azureml": ["--gpus", "--accelerator", "--max-restarts", "WITHOUT"],
    }
    for target in TARGETS:  # and everything else is in the file, with the notes
        text = next(iter(make_manifest(target, settings).values()))
        assert "a-big-one" in text and all(
            f"# NOTE: {n}" in text for n in list_notes(target, settings)
        )
    assert not list_notes("tfjob", ManifestSettings(("x",), checkpoint_dir="pvc:a"))
    assert not list_notes("tfjob", ManifestSettings(("x",), max_restarts=0))


def test_the_gpu_fits_the_machine_or_is_asked_for():
    for machine, kind in (("a2-highgpu-1g", "NVIDIA_TESLA_A100"), (None, "NVIDIA_TESLA_T4")):
        [job] = load("vertex", ManifestSettings(("x",), gpus=1, machine=machine))
        machine = job["workerPoolSpecs"][0]["machineSpec"]
        assert machine["acceleratorType"] == kind
    limits = '{"memory": "8Gi", "amd.com/gpu": 2}'
    _, job = load("kubernetes", ManifestSettings(("x",), gpus=2, accelerator="amd.com/gpu"))
    [container] = job["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == json.loads(limits)


def test_the_image_has_the_course_versions_and_an_init():
    import tomllib

    project = tomllib.loads((VENDORED.parents[2] / "pyproject.toml").read_text())["project"]
    image = make_manifest("kubernetes", make_settings("kubernetes", 1))["Dockerfile"]
    for package in ("tensorflow", "keras", "tf_keras"):
        [pinned] = [name for name in project["dependencies"] if name.startswith(f"{package}==")]
        assert pinned in image
    assert 'ENTRYPOINT ["tini", "-g", "--"]' in image and "ENV PYTHONUNBUFFERED=1" in image


def test_nothing_is_written_over(tmp_path):
    files = make_manifest("vertex", make_settings("vertex", 1))
    assert [path.name for path in write_files(files, tmp_path / "new")] == list(files)
    with pytest.raises(InputError, match="already exist"):
        write_files(files, tmp_path / "new")
