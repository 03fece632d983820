"""What people do with a federation that has run for a while: list its runs, and remove what is no
longer needed.
"""
