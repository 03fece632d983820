"""Methods compared on the same images over several seeds: studies, runs, and tables that refuse
what is not shown.

:mod:`~fedward.lab.bench.study` says what is compared, in the parts of
:mod:`~fedward.lab.bench.study_parts`, :mod:`~fedward.lab.bench.runs` runs it,
:mod:`~fedward.lab.bench.records` keeps the results, :mod:`~fedward.lab.bench.results` looks them
up, :mod:`~fedward.lab.bench.evidence` says what may be concluded from them, and
:mod:`~fedward.lab.bench.tables` and :mod:`~fedward.lab.bench.pictures` show them.
:mod:`~fedward.lab.bench.verification` compares what was kept with the study and its runs.
"""
