"""``python -m fedward`` runs the ``fedward`` command."""

import sys

from fedward.cli import main

if __name__ == "__main__":
    sys.exit(main())
