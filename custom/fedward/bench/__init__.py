"""Methods compared on the same images over several seeds: studies, runs, and tables that refuse what is not shown.

:mod:`~fedward.bench.study` says what is compared, :mod:`~fedward.bench.runs` runs it, :mod:`~fedward.bench.records`
keeps the results, and :mod:`~fedward.bench.tables` and :mod:`~fedward.bench.pictures` show them.
"""
