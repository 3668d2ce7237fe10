"""A folder for PYTHONPATH: it patches Keras in any Python program.

- `sitecustomize`: patch Keras in any Python program, right after the program has imported it
"""
