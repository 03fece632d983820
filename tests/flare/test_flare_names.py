"""The names and behaviours of FLARE that this package relies on.

A new release of FLARE that changes one of them fails here first.
"""

import inspect
from importlib import import_module

import pytest
from nvflare.app_common.workflows.model_controller import ModelController

NAMES = [
    ("nvflare.apis.analytix", "AnalyticsDataType", "SCALAR"),
    ("nvflare.apis.controller_spec", "TaskCompletionStatus", "OK TIMEOUT CLIENT_DEAD"),
    ("nvflare.apis.dxo", "DataKind", "METRICS WEIGHTS WEIGHT_DIFF"),
    ("nvflare.apis.executor", "Executor", "execute"),
    ("nvflare.apis.filter", "Filter", "process"),
    ("nvflare.apis.fl_constant", "FLContextKey", "JOB_META"),
    ("nvflare.apis.fl_constant", "ReturnCode", "OK"),
    (
        "nvflare.apis.event_type",
        "EventType",
        "SYSTEM_BOOTSTRAP SYSTEM_START BEFORE_CLIENT_HEARTBEAT",
    ),
    ("nvflare.fuel.f3.cellnet.core_cell", "CoreCell", "add_incoming_reply_filter"),
    ("nvflare.fuel.flare_api.flare_api", "Session", "try_connect"),
    ("nvflare.apis.impl.job_def_manager", "SimpleJobDefManager", "get_jobs_by_status set_status"),
    ("nvflare.private.defs", "CellChannelTopic", "HEART_BEAT"),
    ("nvflare.apis.fl_context", "FLContext", "get_engine get_identity_name get_job_id get_prop"),
    ("nvflare.apis.client_engine_spec", "ClientEngineSpec", "get_component"),
    ("nvflare.apis.server_engine_spec", "ServerEngineSpec", "get_component"),
    ("nvflare.apis.shareable", "Shareable", "get_return_code"),
    ("nvflare.apis.signal", "Signal", "triggered trigger"),
    (
        "nvflare.apis.workspace",
        "Workspace",
        "get_site_config_dir get_root_dir get_run_dir get_resources_file_path",
    ),
    ("nvflare.apis.workspace", "Workspace", "get_authorization_file_path"),
    ("nvflare.app_common.abstract.fl_model", "ParamsType", "FULL DIFF"),
    ("nvflare.app_common.utils.fl_model_utils", "FLModelUtils", "to_shareable"),
    ("nvflare.app_common.widgets.convert_to_fed_event", "ConvertToFedEvent", ""),
    ("nvflare.app_opt.tracking.tb.tb_receiver", "TBAnalyticsReceiver", ""),
    ("nvflare.app_common.widgets.component_path_authorizer", "ComponentPathAuthorizer", ""),
    ("nvflare.private.fed.app.fl_conf", "create_privacy_manager", ""),
    ("nvflare.private.fed.utils.app_authz", "AppAuthzService", ""),
    ("nvflare.private.fed.simulator.simulator_const", "SimulatorConstants", "JOB_NAME"),
    (
        "nvflare.job_config.api",
        "FedJob",
        "set_app_packages to_server to_clients add_file_to_clients",
    ),
]

SIGNATURES = [
    ("nvflare.apis.controller_spec", "Task", "name data timeout result_received_cb"),
    ("nvflare.apis.controller_spec", "result_received_cb_signature", "client_task fl_ctx"),
    ("nvflare.app_common.widgets.streaming", "create_analytic_dxo", "tag value data_type"),
    ("nvflare.app_common.widgets.streaming", "send_analytic_dxo", "comp dxo fl_ctx"),
    ("nvflare.fuel.utils.memory_utils", "cleanup_memory", ""),
]


def test_names_are_there():
    for module, name, attributes in NAMES:
        found = getattr(import_module(module), name)
        assert not [f"{name}.{each}" for each in attributes.split() if not hasattr(found, each)]


@pytest.mark.parametrize(("module", "name", "parameters"), SIGNATURES)
def test_functions_take_what_they_are_given(module, name, parameters):
    assert set(parameters.split()) <= set(
        inspect.signature(getattr(import_module(module), name)).parameters
    )


def test_the_controller_has_the_life_cycle_we_fill():
    assert ModelController.__abstractmethods__ == {"run"}
    assert {"task", "fl_ctx", "targets"} <= set(inspect.signature(ModelController.send).parameters)
    assert "task" in inspect.signature(ModelController.cancel_task).parameters
    assert "persistor_id" in inspect.signature(ModelController).parameters
