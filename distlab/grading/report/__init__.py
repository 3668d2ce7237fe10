"""Write a grading's pages for students and the class, and its tables.

- `anonymous`: the same results without names: each student under a code that only this grading
  knows
- `answers`: what a student wrote for each exercise, read from the notebook without running it
- `autograded`: nbgrader's autograded notebooks, so that formgrader and `generate_feedback` show
  each answer
- `changes`: changes of earlier marks by a later grading: a trail that only grows
- `classroom`: a class's results for its teacher, as plain values for the class page
- `course`: the whole course: every student's mark in every lab, how each week went, and who falls
  behind
- `pages`: the pages of one lab: one for each student, one for the class, and the marks as a table
- `platforms`: marks and feedback in the forms that learning platforms take in; what waits stays
  blank
- `similar`: answers that are nearly the same: names, comments and spacing don't count
- `slides`: a lab's misconceptions as slides for the room: wrong lines without names, a question,
  why
- `tasks`: what each exercise asked, from the lab's own source: contract, example, hints
- `text`: tables and pages of what others wrote: no formula in a table, no file written for nothing
- `wording`: how the pages name a student's page, write points, and call a verdict
"""
