"""What this machine has, and which parts of the course work on it.

    from distlab import doctor
    print(doctor.format_report(doctor.examine(quick=True)))

Importing this package, and every function of it, leaves TensorFlow out of this
process: it is tried in a child process, which may hang or crash.

- `commands`: run another program with a time limit, and leave nothing of it behind
- `examination`: `examine`: every probe, in the report's order
- `findings`: what the doctor finds, and probes that may fail or hang without harm to the others
- `machine`: probes of the machine itself: Python, system, cores, memory, disk
- `processes`: probes of starting processes: fork, ports, who reaches them, and what a crashed
  kernel left
- `report`: the findings as text for people and as one record for programs, with what works here
- `software`: probes of the installed software: packages, their pinned versions, which `utils` is
  imported, and environment variables that change how code runs
- `tensorflow_child`: the program that the doctor starts to try TensorFlow: a JSON line after each
  stage
- `tensorflow_trial`: try TensorFlow in a child process, and put what came of it into plain words
- `tools`: probes of programs next to Python: browser, bubblewrap, Java, nvidia-smi; and of the
  data
"""

from distlab.doctor.examination import examine as examine
from distlab.doctor.findings import Finding as Finding
from distlab.doctor.findings import can_run as can_run
from distlab.doctor.report import describe_works as describe_works
from distlab.doctor.report import format_report as format_report
from distlab.doctor.report import make_record as make_record
