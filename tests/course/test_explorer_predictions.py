"""The prediction explorer: what it shows, and what it refuses."""

import numpy as np

from distlab.explorables.predictions import draw_prediction, prediction_explorer

NAMES = ("cat", "dog", "owl")


def make_explorer(**changes):
    table = np.array([[0.7, 0.2, 0.1], [0.1, 0.6, 0.3]])
    given = {
        "images": np.random.default_rng(0).random((2, 8, 8, 1)),
        "labels": [0, 2],
        "class_names": NAMES,
        "probabilities": {"before": np.full((2, 3), 1 / 3), "after": table},
    }
    return prediction_explorer(**{**given, **changes})


def test_says_what_the_model_says_of_the_chosen_image():
    explorer = make_explorer()
    assert explorer.values == {"image": 0, "version": "after"}
    assert "says cat with 70 %, which is right" in explorer.result
    explorer.move(image=1)
    assert "says dog with 60 %, which is wrong: it is owl" in explorer.result
    explorer.move(version="before")
    assert "with 33 %" in explorer.result and "Image 1, before" in explorer.result


def test_a_wrong_answer_is_marked_by_more_than_color():
    row = np.array([0.1, 0.6, 0.3])
    right = draw_prediction(np.zeros((8, 8)), 1, NAMES, row, title="t")
    wrong = draw_prediction(np.zeros((8, 8)), 2, NAMES, row, title="t")
    assert "pattern" in wrong.svg and "pattern" not in right.svg
    assert "says dog with 60 %, which is wrong: it is owl" in wrong.alt


def test_a_still_picture_stands_beside_the_widget():
    bundle = make_explorer()._repr_mimebundle_()
    assert "Image 0, after" in bundle["image/svg+xml"]
