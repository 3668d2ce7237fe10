"""The course: its command, lessons and labs, pictures, authoring and grading.

- `__main__`: `python -m distlab` is `distlab`, also in a folder with its own `utils`
- `class_seed`: the numbers that `distlab release --class-seed` draws for a class
- `copies`: a learner's copies of lessons and labs, in `work/` of the course folder
- `errors`: the course's own error. Imports nothing but the library's
- `keras_backend`: a notebook whose kernel starts with another Keras backend, such as JAX
- `notebook_files`: the files that `distlab lab` serves: without the course's machinery, and
  notebooks unchanged
- `progress`: a learner's progress, in two plain files of the course folder's `.distlab`
- `submission`: the name of the zip that `distlab submit` packs, and how grading reads it
  again
- `authoring`: lessons, labs and solutions, made of their sources
- `book`: the book: the whole course as a static site, for a folder (`file://`) and for any web
  server
- `classroom`: a class as a cluster: the students' laptops train one model, and the teacher sees
  every lane
- `cli`: the command `distlab`. Its subcommands are in the modules of this package
- `doctor`: what this machine has, and which parts of the course work on it
- `exercises`: code that the labs share: the `Exercise` object, comparing, and feedback
- `explorables`: interactive pieces: explorables that the browser draws, explorers with sliders,
  the cockpit
- `figures`: pictures that say what they show: every function takes plain records and returns a
  `Picture`
- `grading`: grading a class: `distlab grade` runs submissions in a sandbox and grades them outside
- `home`: the course's home: the page that `distlab lab` opens, a map of lessons and labs
- `kernel`: kernels that are ready: `distlab lab` forks them from a process that has imported
  TensorFlow
- `labs`: the labs, one folder each: its code, and its judge
- `lessons`: companions of single lessons: code that only one lesson needs
- `modernize`: `distlab modernize`: programs of 2017 to 2024, read without running them
- `turns`: what learners write in the lessons, `lessonNN.py` for each: the answer and its mistakes
"""
