"""The requests that FLARE 2.9.0 registers, each of which has been looked at.

A test compares them with the installed FLARE's own code.
"""

NEEDED = {
    ("admin", "*"),
    ("aux_communication", "*"),
    ("cellnet.channel", "bye"),
    ("client_command", "*"),
    ("download_service__", "download_service__download"),
    ("download_service__", "download_service__source_failure"),
    ("hci_channel", "*"),
    ("return_only", "*"),
    ("server_command", "*"),
    ("server_command", "get_task"),
    ("server_command", "submit_update"),
    ("server_parent_listener", "*"),
    ("sm__STREAM", "sm__ACK"),
    ("sm__STREAM", "sm__DATA"),
    ("sm__STREAM", "sm__ERROR"),
    ("task", "challenge"),
    ("task", "heart_beat"),
    ("task", "quit"),
    ("task", "register"),
    ("task", "report_job_failure"),
    ("workspace_transfer", "prepare_download"),
    ("workspace_transfer", "publish_results"),
}
"""What fedward needs; the gate's REQUESTS say from whom."""

DIAGNOSIS = (
    "bulk_item",
    "bulk_test",
    "cells",
    "change_root",
    "comm_config",
    "config_vars",
    "conns",
    "echo",
    "heartbeat",
    "list_pools",
    "msg_stats",
    "peers",
    "process_info",
    "route",
    "show_pool",
    "speed",
    "start_route",
    "stop",
    "stop_cell",
    "stress",
    "url_use",
)
"""Topics of FLARE's diagnosis of networks."""

CLIENT_API = (
    "abort",
    "heartbeat",
    "hello",
    "log",
    "result_ready",
    "result_source_settled",
    "result_status",
    "session_open",
    "session_ready",
    "shutdown",
    "task_ready",
    "task_status",
)
"""Topics of FLARE's client API, another way of running a job."""

REFUSED = {
    ("cellnet.channel", "bulk"),
    ("credential_manager", "key_exchange"),
    ("cc_validation", "get_sites"),
    ("cc_validation", "request_fresh_token"),
    ("client_sub_worker_command", "*"),
    ("collab", "call"),
    ("edge_request", "result_report"),
    ("edge_request", "selection_request"),
    ("edge_request", "task_request"),
    ("flare_agent", "abort"),
    ("flare_agent", "bye"),
    ("flare_agent", "get_task"),
    ("flare_agent", "heartbeat"),
    ("flare_agent", "submit_result"),
    ("hci_channel", "SESSION_EXPIRED"),
    ("metrics", "log"),
    ("multi_process_executor", "execute_result"),
    ("multi_process_executor", "fire_event"),
    ("stream", "test"),
}
REFUSED |= {("_net_manager", topic) for topic in DIAGNOSIS}
REFUSED |= {("client_api", f"client_api.{topic}") for topic in CLIENT_API}
"""What no cell of a kit accepts.

Diagnosis of the network, messages in bulk (which pass FLARE's filters by), keys for encryption
between cells, and what other ways of running a job need."""

LOOKED_AT = NEEDED | REFUSED
