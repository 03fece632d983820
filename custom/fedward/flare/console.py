"""FLARE's admin console, which a user's kit starts, with safe transfers of files.

``fl_admin.sh`` runs this module in place of FLARE's own; see :mod:`fedward.flare.jobs.transfers`.
"""

from nvflare.fuel.hci.tools import admin

from fedward.flare.jobs.transfers import SafeTransfers


def main() -> None:
    """Run FLARE's console with the arguments of this process."""
    admin.FileTransferModule = SafeTransfers
    admin.main()


if __name__ == "__main__":
    main()
