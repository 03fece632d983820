"""``fedward partition``: a data set that lies in one place becomes the site files of a federation."""
