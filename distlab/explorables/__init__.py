"""Interactive pieces: explorables that the browser draws, explorers with sliders, the cockpit.

Each shows a still picture where widgets can't run. README.md says how to write one.

- `advice_map`: what is advised for each size of a model and each number of devices, as a map
- `amdahl`: Amdahl's law as a picture and an explorer: what doesn't spread over devices limits the
  rest
- `arrow`: the arrow that is four times too long: what each way to scale a loss does to a step
- `batches`: the batch explorer: one global batch, cut for workers and replicas
- `bundle`: joins an explorable's files into one text: no build step, no module to fetch, one
  palette
- `catalog`: one example of each explorable, by name: to look at, test or time
- `checkpoint_interval`: the checkpoint-interval explorer: what each interval costs, and which one
  costs least
- `choosing`: the choosing explorer: a decision as data; a job in, its path, a strategy and a plan
  out
- `cluster`: two machines with a TF_CONFIG each to edit, and the cluster that they make or don't
- `cockpit_book`: what has happened in a job, taken in as it comes: steps, losses, lines, and what
  was done
- `cockpit_chaos`: the chaos button: while it is on, a random worker fails every few seconds
- `cockpit_lanes`: what the cockpit shows of a job: one lane for each task, as plain data
- `cockpit_panel`: the cockpit: watch a job's tasks on one axis of time, and kill, pause, slow and
  restart them
- `cockpit_story`: a job on the axis of time: from the tasks' stories to spans, flags and lost
  stretches
- `controls`: a slider and a choice: what an explorer lets the hand change, and where it is frozen
- `conveyor`: the conveyor: an input pipeline as machines on a belt, and who keeps the accelerator
  waiting
- `cut_explorer`: one model on more and more GPUs, cut one way or another; memory and seconds
- `engine_death`: what each way to start workers does when one of them dies
- `explorable`: an explorable: a living picture that the browser draws, in JupyterLab and on any
  web page
- `explorer`: `explore`: a function's picture, which the browser draws again whenever a control
  moves
- `floats`: a number line of floats: what each type makes of a number, and of a model's gradients
- `frames`: many frames in little text: what is the same in all is written once
- `guess`: a guess made with a handle or a button; `show_guess` slides the answer in next to it
- `host_loop`: the host's loop: what a fast device waits for, and how `steps_per_execution`
  shortens it
- `memory`: the memory machine: what fits on a device, and what crosses the wires, moved by hand
- `one_model`: lessons 15, 16, 18, 20 and 23: one model of 7 billion parameters, and what each of
  them changes
- `predictions`: the prediction explorer: one image and each model version's prediction for it
- `rates`: the learning rate of a large batch: linear scaling and warm-up, for every batch size
- `ring`: all-reduce in motion: a ring with the reader's own numbers, and five algorithms on one
  clock
- `schedule`: the schedule as a toy: pipeline schedules drawn, compared and followed in the browser
- `run_log`: a killed run's logbook on one axis of time, and the same run with other choices below
  it
- `screenshots`: screenshots of an explorable: `python -m distlab.explorables.screenshots NAME
  FOLDER`
- `sharding`: the conveyor of several workers: which examples reach whom, which fall, and which
  twice
- `sharing`: what replicas share, as pictures and explorers: a cluster, its pace, its memory
- `staleness`: the staleness race: workers of unequal speed, four ways to train, and what late
  gradients do
- `step`: a training step on one time axis: buckets that fill, an all-reduce that hides or doesn't
- `values`: one value per replica, and where reduce, gather and all_reduce leave it
- `page_replicas`: the replicas of lesson 00 for a page without a kernel
- `watched_replicas`: lesson 00: the replicas of `two_replicas`, trained while one watches, with a
  hand on the wire
"""

from distlab.explorables.arrow import update_arrow as update_arrow
from distlab.explorables.cluster import edit_cluster as edit_cluster
from distlab.explorables.cockpit_panel import Cockpit as Cockpit
from distlab.explorables.cockpit_panel import cockpit as cockpit
from distlab.explorables.controls import Choice as Choice
from distlab.explorables.controls import Slider as Slider
from distlab.explorables.conveyor import conveyor as conveyor
from distlab.explorables.explorable import Explorable as Explorable
from distlab.explorables.explorer import Explorer as Explorer
from distlab.explorables.explorer import explore as explore
from distlab.explorables.floats import float_line as float_line
from distlab.explorables.guess import guess_number as guess_number
from distlab.explorables.guess import guess_word as guess_word
from distlab.explorables.memory import memory_machine as memory_machine
from distlab.explorables.ring import all_reduce_race as all_reduce_race
from distlab.explorables.ring import ring_of as ring_of
from distlab.explorables.schedule import schedule_toy as schedule_toy
from distlab.explorables.sharding import sharding_belt as sharding_belt
from distlab.explorables.staleness import staleness_race as staleness_race
from distlab.explorables.step import step_time_line as step_time_line
from distlab.explorables.values import replica_values as replica_values
