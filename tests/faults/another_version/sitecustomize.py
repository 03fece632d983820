"""Lets a participant's processes take themselves for another version of fedward: FEDWARD_PRETENDED
names it.
"""

import os

import fedward

fedward.__version__ = os.environ["FEDWARD_PRETENDED"]
