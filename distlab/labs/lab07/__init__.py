"""Lab 07, Cluster doctor: its code, and its judge.

- `failing_logs`: logs of eight clusters that failed for real (TensorFlow 2.21), shortened, for lab
  07
"""
