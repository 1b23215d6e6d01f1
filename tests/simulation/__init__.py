"""Whole clusters in one process: the real driver, log and storage under virtual time, and everything else simulated.

A run is a function of its seed alone. ``python -m tests.simulation --seed 7 --trace`` replays one.
"""
