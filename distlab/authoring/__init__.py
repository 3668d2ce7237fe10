"""From sources to notebooks: `distlab build` and `distlab new`.

- `build`: regenerate lessons, labs and solutions: only what changed, several at once
- `course_map`: the course map: what README and lesson 00 say of each lesson and lab
- `execute`: run a notebook's cells in a fresh kernel that leaves nothing behind
- `new_lab`: the files of a new lab: three exercises that build, check and grade as they stand
- `outputs`: what a run leaves in a notebook, made the same on every machine
- `sources`: from a py:percent source to a notebook that has not run yet
"""
