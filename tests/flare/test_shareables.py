"""What FLARE carries is what was packed, and a site's privacy filters see differences only."""

import numpy as np
import pytest
from nvflare.apis.dxo import DXO, DataKind, from_shareable
from nvflare.apis.fl_context import FLContext
from nvflare.apis.shareable import Shareable
from nvflare.app_common.app_constant import AppConstants
from nvflare.app_common.filters.percentile_privacy import PercentilePrivacy

from fedward.errors import WireError
from fedward.flare.shareables import pack_answer, pack_request, unpack

META = {
    "site": "site-1",
    "round": 3,
    "labelled": 14,
    "metrics": [{"split": "val", "value": None, "classes": ["MEL"]}],
}
ARRAYS = {"diff/a": np.array([1.5, -2.0], np.float32), "diff/b": np.zeros((2, 0, 3), np.float32)}


@pytest.mark.parametrize("pack", [pack_request, pack_answer])
@pytest.mark.parametrize("arrays", [ARRAYS, {}], ids=["arrays", "no arrays"])
def test_a_message_comes_out_as_it_went_in(pack, arrays):
    meta, received = unpack(pack(META, arrays))
    assert meta == META
    assert list(received) == list(arrays)
    for name, array in arrays.items():
        assert received[name].dtype == np.float32
        np.testing.assert_array_equal(received[name], array)


def test_requests_are_weights_and_answers_differences():
    kinds = [
        from_shareable(s).data_kind for s in (pack_request(META, ARRAYS), pack_answer(META, ARRAYS))
    ]
    assert kinds == [DataKind.WEIGHTS, DataKind.WEIGHT_DIFF]
    assert from_shareable(pack_answer(META, {})).data_kind == DataKind.METRICS


def test_flare_learns_the_round():
    assert pack_request(META, ARRAYS).get_header(AppConstants.CURRENT_ROUND) == 3


def test_packing_copies_no_array():
    assert from_shareable(pack_request(META, ARRAYS)).data["diff/a"] is ARRAYS["diff/a"]


def test_a_privacy_filter_changes_differences_alone():
    filtered = PercentilePrivacy(percentile=50, gamma=0.1)
    difference = {"diff/a": np.array([0.01, -5.0, 3.0], np.float32)}
    _, arrays = unpack(filtered.process(pack_answer(META, difference), FLContext()))
    assert np.abs(arrays["diff/a"]).max() <= 0.1 + 1e-6
    meta, arrays = unpack(filtered.process(pack_answer(META, {}), FLContext()))
    assert meta == META
    assert arrays == {}


@pytest.mark.parametrize(
    "foreign",
    [
        Shareable(),
        DXO(DataKind.WEIGHTS, {"a": np.zeros(1)}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"a": [1.0]}, meta={"fedward": META}).to_shareable(),
        DXO(DataKind.WEIGHTS, {"a": np.zeros(1)}, meta={"fedward": "text"}).to_shareable(),
        DXO(DataKind.WEIGHTS, {7: np.zeros(1)}, meta={"fedward": META}).to_shareable(),
    ],
    ids=["empty", "no meta", "no arrays", "meta of another kind", "a number as a name"],
)
def test_foreign_messages_are_refused(foreign):
    with pytest.raises(WireError, match="FLARE message"):
        unpack(foreign)


@pytest.mark.parametrize("round_", [-5, None, "1"])
def test_the_refusal_of_an_invalid_round_can_be_sent(round_):
    meta = {"site": "a", "round": round_, "error": "refused"}
    assert unpack(pack_answer(meta, {})) == (meta, {})
