"""`examine`: every probe, in the report's order."""

from distlab.doctor import machine, processes, software, tools
from distlab.doctor.findings import Finding, Probe, run_probes
from distlab.doctor.tensorflow_trial import LIMIT_SECONDS, examine_gpus, try_tensorflow


def examine(quick: bool = False) -> list[Finding]:
    """Look at everything and return the findings. Never raises, never waits for ever.

    `quick` leaves out the child process that tries TensorFlow (about ten
    seconds) and the check of full data sets. This process imports no TensorFlow.
    """
    return run_probes(list_probes(quick))


def list_probes(quick: bool = False) -> list[Probe]:
    """Return the probes that `examine` runs, with their time limits."""
    trial = Probe("GPU", look_for_gpus) if quick else _make_trial()
    return [
        Probe("Python", machine.examine_python),
        Probe("system", machine.examine_system),
        Probe("cores", machine.examine_cores),
        Probe("memory", machine.examine_memory),
        Probe("disk", machine.examine_disk),
        Probe("versions", software.examine_shown_packages),
        Probe("packages", software.examine_other_packages),
        Probe("utils", software.examine_utils),
        Probe("variables", software.examine_variables),
        trial,
        Probe("data", tools.examine_bundled_data, 20.0),
        Probe("full data", lambda: tools.examine_full_data(check=not quick), 30.0),
        Probe("browser", tools.examine_browser),
        Probe("bubblewrap", tools.examine_bubblewrap),
        Probe("Java", tools.examine_java),
        Probe("fork", processes.examine_fork),
        Probe("ports", processes.examine_ports),
        Probe("cluster ports", processes.examine_network),
        Probe("left-over workers", processes.examine_workers),
    ]


def look_for_gpus() -> list[Finding]:
    """Return the GPUs that the driver names, without TensorFlow, and who would use them."""
    return examine_gpus(None)


def _make_trial() -> Probe:
    return Probe("TensorFlow start", try_tensorflow, LIMIT_SECONDS + 10.0)
