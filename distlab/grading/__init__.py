"""Grading a class: `distlab grade` runs submissions in a sandbox and grades them outside.

The path of a submission:
 1. `session` grade is the whole run; `journal` keeps the observations, so that it can resume, and
    `memory` the lab's rules and marks by hand.
 2. `collect`, `handed_in` and `naming` find notebooks in folders and zips, and their owners;
    `roster` reads the teacher's lists: students, times, marks by hand.
 3. `executor` observe starts two processes at once: the `sandbox` and a `reader_process`.
 4. The reader's server (`reader_server`) forks for each notebook, as it is hostile: it reads
    the file (`notebook_file`), tells the learner's own cells from the course's (`alignment`,
    with `cell_text`), and notes facts about them (`facts`): a plan.
 5. `running` keeps one submission: its pipes, its time limit, what was seen of each cell.
 6. The sandbox, bubblewrap around `submission_server`, forks a harness (`harness`) and, sealed
    (`sealing`), the process of its answers (`answer_process`).
 7. The harness makes the inputs and calls the answer over a pipe (`answer_calls`); `encoding`
    makes plain data of its results. Code that holds an answer isn't there (`absent`).
 8. `frames` reads the output, with limits, and `text` cleans it: none of it is trusted.
 9. The result is an `observation`; it is judged outside, while others run, by a second reader
    (`judge_process`): `cell_verdict`, the lab's `judge`.
10. `verdict` has the marks of exercises, `results` what a policy makes of them, `gradebook`
    keeps them in nbgrader's database, `report` writes the pages.

- `demo`: a small class to try grading on: `python -m distlab.grading.demo [FOLDER]` (`make
  grade-demo`)
- `evidence`: what each mark proves, as a table for docs/grading.md: `python -m
  distlab.grading.evidence`
- `gradebook_rows`: the rows of one lab in nbgrader's tables: found, or made as nbgrader makes them
- `judging`: what the judge of an exercise is: the exercise, and the reference that only grading
  has
- `labs`: a lab as grading sees it: its exercises, the parts of its graded cells, its time limits
- `process_tree`: the processes below one process, and the memory that they hold
- `program_cell`: an answer that is a whole program: a cell that begins with `%%writefile NAME.py`
- `regression`: losses and gradients of softmax regression in NumPy: the one-device truth of labs
  03 to 09
- `worked`: `python -m distlab.grading.worked lab01 …`: write what the visible checks compare with
- `release`: what a course hands out: the students' copy, and an nbgrader course for the teacher
"""
