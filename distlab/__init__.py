"""The course: its command, lessons and labs, pictures, authoring and grading.

- `__main__`: `python -m distlab` is `distlab`, also in a folder that has a `utils` of its own
- `class_seed`: what `distlab release --class-seed` draws anew for a class
- `copies`: a learner's copies of lessons and labs, in `work/` of the course folder
- `errors`: the course's own error. Imports nothing but the library's
- `keras_backend`: a notebook whose kernel starts with another Keras backend, such as JAX
- `notebook_files`: the files that `distlab lab` serves: without the course's machinery, and
  notebooks unchanged
- `progress`: what a learner has done, in two plain files of the course folder's `.distlab`
- `submission`: what `distlab submit` calls the zip that it packs, and how grading reads that name
  again
- `authoring`: lessons, labs and solutions, made of their sources
- `book`: the book: the whole course as a static site, for a folder (`file://`) and for any web
  server
- `classroom`: a class as a cluster: the students' laptops train one model, and the teacher sees
  every lane
- `cli`: the command `distlab`. Its subcommands are in the modules of this package
- `doctor`: what this machine has, and what of the course works on it
- `exercises`: what the labs share: the `Exercise` object, comparing, and what is said to learners
- `explorables`: interactive pieces: explorables that the browser draws, explorers with sliders,
  the cockpit
- `figures`: pictures that say what they show: every function takes plain records and returns a
  `Picture`
- `grading`: grading a class: `distlab grade` runs what was handed in, sealed, and judges it
  outside
- `home`: the course's home: the page that `distlab lab` opens, a map of lessons and labs
- `kernel`: kernels that are ready: `distlab lab` forks them from a process that has imported
  TensorFlow
- `labs`: the labs, one folder each: what a lab runs, and how it is judged
- `lessons`: companions of single lessons: what one lesson needs and nobody would take home
- `modernize`: `distlab modernize`: programs of 2017 to 2024, read without running them
- `turns`: what learners write in the lessons, `lessonNN.py` for each: the answer and its mistakes
"""
