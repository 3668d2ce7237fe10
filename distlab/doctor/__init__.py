"""What this machine has, and what of the course works on it.

    from distlab import doctor
    print(doctor.format_report(doctor.examine(quick=True)))

Importing this package, and every function of it, leaves TensorFlow out of this
process: it is tried in a child process, which may hang or crash.
"""

from distlab.doctor.examination import examine as examine
from distlab.doctor.findings import Finding as Finding
from distlab.doctor.findings import can_run as can_run
from distlab.doctor.report import describe_works as describe_works
from distlab.doctor.report import format_report as format_report
from distlab.doctor.report import make_record as make_record
