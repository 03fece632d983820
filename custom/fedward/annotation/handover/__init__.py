"""The queue as files for other programs and other people, and their answers as files back.

``csv``: one file, a row for each decision and each image that still waits. ``label-studio``: a folder with tasks for
what waits, results for what is decided, the labelling configuration and the pictures. ``monai-label``: a datastore
folder as MONAI Label's server keeps it.
"""

from fedward.annotation.handover.content import Content, Exported
from fedward.annotation.handover.forms import FORMS, read, write, written

__all__ = ["FORMS", "Content", "Exported", "read", "write", "written"]
