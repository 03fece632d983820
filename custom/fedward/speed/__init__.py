"""Shortcuts through other libraries, each in a module of its own.

A module here says what it does, why, with which versions it was tried, and how much faster a shipped
job is with it. ``benchmarks/tricks.py`` measures that ratio. A shortcut that makes no shipped job at
least 1.10 times as fast is removed.
"""
