"""Shortcuts through other libraries, each in a module of its own.

Each says what it does, why, with which versions it was tried, and how much faster a shipped job is
with it, which ``benchmarks/tricks.py`` measures. A shortcut that makes no shipped job at least 1.10
times as fast is to be removed.
"""
