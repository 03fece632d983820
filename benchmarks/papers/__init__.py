"""Experiments of the papers, run again: one module a paper, each with the paper's numbers beside ours."""
