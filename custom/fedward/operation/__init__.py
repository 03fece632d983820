"""Commands for a site before it joins, and for a federation that has run for a while."""
