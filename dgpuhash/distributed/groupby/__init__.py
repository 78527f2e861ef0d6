"""``dgpuhash.groupby`` of Dask frames: expressions, tasks, and the states that workers hold."""
