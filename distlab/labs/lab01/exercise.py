"""Lab 01, batches and words: four functions in plain Python."""

from distlab.exercises.exercise import Exercise
from distlab.labs import ANSWERS

ABSENT = (*ANSWERS, "utils.data.shares", "utils.data.batches")

EPOCH = Exercise(
    lab="lab01",
    name="epoch",
    function="plan_epoch",
    examples=((66, 32), (64, 32), (29, 32), (33, 8)),
    mistakes={
        "rest-dropped": "the examples left over make one more, smaller step: they aren't dropped",
        "rounded-down": "steps are rounded up, not down: the rest needs its own step",
        "zero-left-over": "a batch that divides the examples leaves nothing over: its last step is "
        "a full one",
        "one-too-many": "adding 1 to the whole batches is one step too many where the batch "
        "divides exactly",
        "last-is-full": "the last batch holds only what is left over, not a full batch",
        "whole-and-rest": "these are the whole batches and what is left over: the rest makes one "
        "more step, and without a rest the last step is a full one",
        "rounded-to-nearest": "steps are rounded up: any rest makes a step, also less than half a "
        "batch",
        "what-is-missing": "that is how many examples the last step lacks: return how many it has",
        "one-left-alone": "one example that is left over makes a step too: any rest does, not only "
        "a rest of 2 or more",
    },
    hint="count the whole batches, then look at what is left over",
)
BATCHES = Exercise(
    lab="lab01",
    name="batches",
    function="replica_batch_sizes",
    by_hand=("utils.data.shares",),
    examples=((1024, 4, 4), (34, 2, 2), (2, 1, 4), (9, 2, 2)),
    mistakes={
        "one-worker": "the batch is global: divide it by the replicas of all workers, not of one",
        "per-worker": "these are per-worker batches: each worker shares its batch among its "
        "replicas",
        "rounded-down": "rounding down loses the examples that are left over: round up",
        "rounded-up": "rounding up everywhere trains on more examples than the batch holds: the "
        "last replicas get what is left, or nothing",
        "below-nothing": "a replica can't have fewer than 0 examples: a share is at most what is "
        "left, so several of the last ones can be 0",
        "one-more-each": "that is as even as can be, with one more for the first replicas. "
        "TensorFlow rounds every share up, so it's the last replicas that get fewer or none",
        "rest-to-last": "that share is rounded down, with the rest added to the last replica. "
        "TensorFlow rounds every share up, as long as the examples last",
        "worker-by-worker": "the batch is divided by the replicas of all workers at once, not "
        "first by the workers",
        "larger-last": "these are the right sizes in the wrong order: full shares come first",
        "added": "workers and replicas per worker are multiplied, not added up: each worker has as "
        "many",
        "at-least-a-share": "the larger of a full share and what is left was taken: a replica gets "
        "the smaller",
        "rest-to-first": "that share is rounded down, with the rest added to replica 0. TensorFlow "
        "rounds every share up, as long as the examples last",
    },
    hint="every share is batch / replicas rounded up, until the examples are used up: as many "
    "sizes as replicas, whose sum is the global batch",
)
PARALLELISM = Exercise(
    lab="lab01",
    name="parallelism",
    function="choose_parallelism",
    examples=(
        (1_000_000, 0.5, 16, 2, 8),
        (100_000_000, 4, 16, 30, 8),
        (2_000_000_000, 4, 24, 6, 8),
        (1_000_000_000, 12, 24, 6, 8),
        (10_000_000_000, 4, 24, 6, 8),
        (2_000_000_000, 4, 24, 30, 8),
        (2**30, 8, 24, 6, 8),
        (300_000_000, 0.5, 16, 8, 8),
        (1_450_000_000, 2, 24, 6, 8),
        (1_500_000_000, 2, 24, 6, 8),
        (3_000_000_000, 4, 24, 6, 8),
        (1_300_000_000, 12, 24, 6, 8),
    ),
    mistakes={
        "weights-only": "a parameter takes 16 bytes, not 4: the weight, its gradient and Adam's "
        "two moments, 4 bytes each",
        "no-weight": "a parameter takes 16 bytes, not 12: gradient and two moments, and the weight "
        "itself",
        "no-gradient-no-state": "a parameter takes 16 bytes, not 8: the weight, its gradient and "
        "two moments, 4 bytes each",
        "no-activations": "activations need room, too, on top of the 16 bytes of each parameter",
        "decimal-gigabytes": "1 GiB is 2**30 bytes, not 10**9",
        "time-first": "copies of the model share the data, and none of them fits: when memory and "
        "time are both short, split the model, too",
        "memory-ignored": "memory comes first: each data-parallel replica holds a whole copy of "
        "the model",
        "time-ignored": "memory isn't everything: a run that fits and takes too long needs more "
        "replicas",
        "split-needlessly": "a model that fits isn't split: when only time is short, copies of it "
        "share the data",
        "no-room-to-spare": "memory that is just enough is enough: compare with <=",
        "no-time-to-spare": "a time that is just allowed is allowed: compare with <=",
    },
    hint="ask two questions apart: does one copy fit on one device, and is one copy fast enough?",
)
SCALING = Exercise(
    lab="lab01",
    name="scaling",
    function="choose_replicas",
    examples=(
        ([1, 2, 4], [0.100, 0.125, 0.160], 10_000_000, 64, 3),
        ([4, 1, 2], [0.125, 0.100, 0.180], 10_000_000, 64, 4.2),
        ([4, 1, 8], [0.200, 0.100, 0.400], 10_000_000, 64, 2),
        ([1, 2, 4], [1.0, 1.02, 0.9], 65, 16, 0.05),
    ),
    mistakes={
        "times-not-images": "a step of n replicas handles n times as many images: compare images "
        "per second",
        "upside-down": "these speed-ups are inverted: a shorter step is a larger speed-up",
        "not-divided": "efficiency is the speed-up divided by the number of replicas",
        "first-is-reference": "the reference is the run with one replica, wherever it is in the "
        "list",
        "percentage": "efficiency is a fraction of 1 here, not a percentage",
        "fastest": "that is the fastest run. Among those in time, choose the one with the fewest "
        "replica-hours, which is replicas × hours",
        "too-late": "that run has the fewest replica-hours of all, but it takes longer than "
        "allowed: leave such runs out first",
        "same-steps": "a run is late by its own hours, not by replica-hours: a step of n replicas "
        "handles n × images_per_replica images, so there are fewer of them",
        "seconds-not-hours": "steps × seconds of a step are seconds, and allowed_hours are hours: "
        "divide by 3600",
        "minutes-not-hours": "allowed_hours are hours: divide the seconds by 3600, not by 60",
        "efficiency-times-n": "efficiency is the speed-up divided by the number of replicas, "
        "not multiplied by it",
        "fewest-replicas": "that is the run in time with the fewest replicas, which isn't always "
        "the one with the fewest replica-hours: steps are rounded up",
        "never-none": "no run is in time there: the choice is None",
        "one-per-step": "images / images_per_replica isn't a whole number of steps: the last, "
        "smaller step takes as long as a full one, so round up",
    },
    hint="for each run: images of a step, steps rounded up, hours, replica-hours. Leave out what "
    "is too late, then take the smallest",
    tolerance=0.01,
)
