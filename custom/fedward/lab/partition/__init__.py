"""``fedward partition``: a data set in one place becomes the site files of a federation."""
