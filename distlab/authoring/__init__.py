"""From sources to notebooks: `distlab build` and `distlab new`.

- `build`: regenerate lessons, labs and solutions: only what changed, several at once
- `course_map`: the course map: what README and lesson 00 say of each lesson and lab
- `execute`: run a notebook's cells in a fresh kernel that leaves nothing behind
- `new_lab`: the files of a new lab: one exercise that builds, checks and grades as it stands
- `outputs`: what a run leaves in a notebook, made the same on every machine
- `sources`: from a py:percent source to a notebook that hasn't run yet
"""
