"""What this machine has, and what of the course works on it.

    from utils import doctor
    print(doctor.format_report(doctor.examine(quick=True)))

Importing this package, and every function of it, leaves TensorFlow out of this
process: it is tried in a child process, which may hang or crash.
"""

from utils.doctor.examination import examine as examine
from utils.doctor.findings import Finding as Finding
from utils.doctor.findings import can_run as can_run
from utils.doctor.report import describe_works as describe_works
from utils.doctor.report import format_report as format_report
from utils.doctor.report import make_record as make_record
