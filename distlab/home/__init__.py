"""The course's home: the page that `distlab lab` opens, a map of lessons and labs.

`course.py` reads the notebooks and what has been done, `pictures.py` has a small picture
for each lesson, `page.py` makes the page, `server.py` serves it and writes down which cells
have run. In JupyterLab it is shown by `distlab/lab_config/labextensions/distlab-home`, which
asks for it again when something has been done.
"""
