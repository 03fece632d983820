"""Let a participant's processes report the version of fedward that FEDWARD_PRETENDED names."""

import os

import fedward

fedward.__version__ = os.environ["FEDWARD_PRETENDED"]
