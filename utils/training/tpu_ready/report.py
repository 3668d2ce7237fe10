"""The findings of an examination, as plain records and as text."""

from dataclasses import asdict, dataclass
from typing import Any

from ...measure import count

CALLBACK, UNSUPPORTED, STRING = "host callback", "unsupported op", "string tensor"
DATA_SHAPE, UNKNOWN_SIZE = "data-dependent shape", "dynamic shape"
LOOP = "loop of unknown length"
SIDE_EFFECT, NO_TRACE, NO_COMPILE = "Python side effect", "not traceable", "does not compile"
RETRACING, DOUBLE, BATCH = "retracing", "float64", "batch size"
ADVICE = (RETRACING, DOUBLE, BATCH)  # the other kinds are problems

FIXES = {
    CALLBACK: "keep Python and printing out of the step: use TensorFlow ops, return the value, "
    "or do it in the input pipeline, which runs on the host",
    UNSUPPORTED: "compute it with ops that XLA has, or move it into the input pipeline",
    STRING: "turn strings into numbers in the input pipeline",
    DATA_SHAPE: "keep the full shape: tf.where(mask, value, 0) with three arguments and a count, "
    "or pad to a fixed size",
    LOOP: "give tf.while_loop its maximum_iterations: XLA must know how much to keep for the "
    "gradient",
    UNKNOWN_SIZE: "give every size but the batch's: pad or bucket in the input pipeline",
    SIDE_EFFECT: "it runs while the step is traced and never again: use a variable, "
    "keras.random or tf.random",
    NO_TRACE: "the step must run on tensors without their values: branch and loop with tf.where, "
    "tf.cond and tf.while_loop",
    NO_COMPILE: "see XLA's message",
    RETRACING: "create variables before the first step, and pass tensors, not Python numbers",
    DOUBLE: "a TPU emulates it, slowly: use float32 or bfloat16",
    BATCH: "a TPU works on rows in eights and pads the last: take a multiple of 8 on each core",
}


@dataclass(frozen=True)
class TpuFinding:
    """One thing to fix: `kind` is one of `FIXES`, `source` "file.py:line" or empty."""

    kind: str
    what: str
    layer: str = ""
    source: str = ""

    @property
    def is_problem(self) -> bool:
        return self.kind not in ADVICE

    @property
    def fix(self) -> str:
        return FIXES[self.kind]

    def __str__(self) -> str:
        layer = f" in layer {self.layer!r}" if self.layer else ""
        source = f", {self.source}" if self.source else ""
        return f"{self.kind}: {self.what}{layer}{source}"


@dataclass(frozen=True)
class ReadyReport:
    """The findings for one model; `compiled` says whether XLA took the step.

    `step_seconds` is the time of the compiled step on this CPU, None if it wasn't compiled.
    `loss_note` says how a model came by a loss that had none.
    """

    model: str
    batch_size: int
    findings: tuple[TpuFinding, ...]
    compiled: bool
    ops: int
    compile_seconds: float | None = None
    step_seconds: float | None = None
    loss_note: str = ""

    @property
    def problems(self) -> tuple[TpuFinding, ...]:
        return tuple(finding for finding in self.findings if finding.is_problem)

    @property
    def ready(self) -> bool:
        return self.compiled and not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Return what `--json` prints."""
        findings = [{**asdict(f), "problem": f.is_problem, "fix": f.fix} for f in self.findings]
        return {**asdict(self), "ready": self.ready, "findings": findings}

    def __str__(self) -> str:
        advice = len(self.findings) - len(self.problems)
        counts = f"{count(len(self.problems), 'problem')}, {advice} advice"
        lines = [f"model {self.model!r}, batch {self.batch_size}: {counts}"]
        for finding in self.findings:
            word = "problem" if finding.is_problem else "advice"
            lines += [f"{word:<9}{finding}", f"{'':<9}fix: {finding.fix}"]
        return "\n".join([*lines, self._say_compiled()])

    def _say_compiled(self) -> str:
        note = f" ({self.loss_note})" if self.loss_note else ""
        if not self.compiled:
            return f"XLA didn't compile the training step{note}."
        times = f"in {self.compile_seconds:.1f} s, then {1e3 * self.step_seconds:.1f} ms a step"
        says = f"XLA compiled the training step for the CPU{note}: {self.ops} ops, {times}."
        if self.ready:
            says += " Nothing found that would stop it on a TPU."
        return says
