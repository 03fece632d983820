"""What a run folder says: its run.json and the rows of its logs, one type each for who writes and who reads them."""

from fedward.storage.info import FORMAT, RunInfo, Status, Summary, read_info
from fedward.storage.rows import (
    LOGS,
    BudgetRow,
    ByteRow,
    GroupRow,
    PeerRow,
    QueryRow,
    RoundRow,
    Row,
    line_of,
    read_rows,
    row_of,
)

__all__ = [
    "FORMAT",
    "LOGS",
    "BudgetRow",
    "ByteRow",
    "GroupRow",
    "PeerRow",
    "QueryRow",
    "RoundRow",
    "Row",
    "RunInfo",
    "Status",
    "Summary",
    "line_of",
    "read_info",
    "read_rows",
    "row_of",
]
