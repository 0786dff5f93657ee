"""Many runs instead of one: systems by name, grids of runs in processes, tables and plots of what came out.

`specs` and `keywords` turn text into systems and environments, `runner` runs trials in parallel, `compare`
aggregates them, `tables`, `plots` and `report` put them on disk.
"""
