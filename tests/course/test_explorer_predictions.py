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
    assert explorer.values == {"place": 0, "version": "after"}
    assert "says cat with 70 %, which is right" in explorer.result
    explorer.move(place=1)
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


def test_images_go_from_the_surest_right_answer_to_the_surest_wrong_one():
    table = np.array([[0.2, 0.5, 0.3], [0.1, 0.3, 0.6], [0.9, 0.0, 0.1], [0.0, 0.8, 0.2]])
    given = {"before": np.full((4, 3), 1 / 3), "after": table}
    images = np.random.default_rng(0).random((4, 8, 8))
    explorer = make_explorer(images=images, labels=[0, 2, 0, 2], probabilities=given, start=1)
    assert explorer.values["place"] == 1
    strip, shown = explorer.data["frame"]["parts"]
    assert strip["shares"] == "90 60 -50 -80" and shown["title"] == "Image 1, after"
    answers = [each["answer"] for each in explorer.data["tries"]]
    assert "surest wrong answer 80 %" in answers[0] and "2 got 50 % or more" in answers[0]
    assert answers[1].startswith("At 2, after as many right answers.")
