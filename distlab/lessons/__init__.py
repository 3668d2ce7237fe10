"""Companions of single lessons: code that only one lesson needs.

| lesson | companions |
|---|---|
| 00 | `live_loss`, `two_replicas` |
| 04 | `training_step` |
| 05 | `scaled_updates` |
| 06, 07 | `all_reduce_race` |
| 08 | `typed_cluster`, `failing_starts` |
| 08, 09 | `watched_training` |
| 08, 09 | `cluster_pictures` |
| 10 | `chaos` (also `make chaos`) |
| 11 | `stale_updates`, `update_records`, `slow_workers`, `loopback_traffic` |
| 11 | `watched_servers` |
| 11, 13 | `server_pictures` |
| 12 | `profiles` |
| 14 | `tpu_mesh` |
| 15 | `split_matrix`, `split_mlp`, `dtensor_mlp`, `dtensor_tiles` |
| 16 | `replicated_pipeline`, `weight_stashing` |
| 18 | `float_pictures`, `kept_activations` |
| 19 | `engine_pictures`, `engine_runs` |
| 20 | `published_runs` |
| 21 | `what_works` |
| 22 | `capstone`, `capstone_gallery`, `killed_run`, `logbook`, `mask_pictures` |
| 23 | `mesh_pictures` |
| 24 | `keras_on_jax` |
"""
