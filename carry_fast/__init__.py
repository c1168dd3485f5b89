"""Faster ways to the same numbers, each tested equal to the core's plain pass.

`engine` is what measurements use, where the core finds it. All else here serves it, training, and
the paper's maps.
"""
