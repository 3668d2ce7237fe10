"""Lab 07, Cluster doctor: what it runs, and how it is judged.

- `failing_logs`: logs of eight clusters that failed for real (TensorFlow 2.21), shortened, for lab
  07
"""
