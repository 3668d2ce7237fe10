"""A class as a cluster: the students' laptops train one model, and the teacher sees every lane.

    from distlab.classroom import start         # the teacher, or: distlab classroom start
    from distlab.classroom import join          # each student, or: distlab classroom join ADDRESS

It is a rendezvous (`utils.engines.rendezvous`): the laptops prove that they know the code, and
only numbers travel. Each runs its own copy of `classroom.program`, with the teacher's settings.

| module | what it holds |
|---|---|
| `settings` | what is trained, and how it is handed out |
| `meeting` | where the class meets; what must be the same on every laptop |
| `program` | what runs on each laptop |
| `joining`, `hosting` | a student's side, and the test of connections; the teacher's side |
| `events`, `roll` | laptops' messages, taken with care; each student's lane |
| `table`, `watching` | the lanes at a terminal and in a notebook |
| `notebook` | a class hosted from a cell |

Importing this package doesn't import TensorFlow. Code that only a notebook needs is imported on
demand.
"""

from distlab.classroom.hosting import Classroom as Classroom
from distlab.classroom.joining import join as join
from distlab.classroom.joining import try_connections as try_connections
from distlab.classroom.settings import ClassSettings as ClassSettings
from utils.lazy import import_lazily

# their cockpit is too much for a student's shell
__getattr__ = import_lazily(__name__, dict.fromkeys(("start", "RunningClass"), "notebook"))
