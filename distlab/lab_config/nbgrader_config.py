"""Empty on purpose: without a file of this name nbgrader warns at every start."""
