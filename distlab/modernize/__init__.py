"""`distlab modernize`: programs of 2017 to 2024, read without running them.

- `table.toml`: what stopped, changed or is silently wrong, entry by entry; `table.py` reads it.
- `installed.py`: which names the installed TensorFlow and Keras have, from their files.
- `names.py`: what the names of a program mean: imports followed, kinds of objects.
- `reading.py`: the entries found in a program; `checks.py`: those that need more than a name.
- `rewriting.py`: the mechanical changes, made by libcst, which keeps comments and layout.
- `sources.py`: files, folders and notebooks as text, and back.
- `pages.py`: docs/migrating.md and lesson 02's table, made from the same entries.
"""
