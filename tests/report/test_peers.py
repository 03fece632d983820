"""The report's section on peers: communities, and a warning if models were compared by little."""

import json

import pytest
from pages import report
from run_folders import write_run

from fedward.report.peers import Peers, blocks, by_community, frequent_peers
from fedward.runs.communities import Community
from fedward.runs.run import Run

SITES = ("a", "b", "c", "d", "e")


@pytest.fixture
def folder(tmp_path):
    return write_run(tmp_path / "run", rounds=1, sites=SITES)


def write_peers(folder, features, options):
    rows = [
        {"round": 1, "chosen": {"a": ["b"], "b": ["a", "c"], "c": ["a", "b"]}},
        {"round": 2, "chosen": {"d": ["e", "a"], "e": ["d"]}},
    ]
    common = {"sites": [], "nearest": [], "similarity": [], "anonymised": True}
    common["features"] = features
    lines = [json.dumps(common | row) + "\n" for row in rows]
    (folder / "peers.jsonl").write_text("".join(lines))
    info = json.loads((folder / "run.json").read_text())
    info["experiment"]["options"] |= options
    (folder / "run.json").write_text(json.dumps(info))


def test_communities_are_listed_with_their_share_and_chance(folder):
    write_peers(folder, 24, {})
    peers = Peers.of(Run.load(folder))
    assert list(peers.communities) == [
        Community(("a", "b", "c"), picks=5, inside=5, chance=0.5),
        Community(("d", "e"), picks=3, inside=2, chance=0.25),
    ]
    _, page = report(folder)
    assert page.tables["table-communities"][1:] == [
        ["a, b, c", "5", "100 %", "50 %"],
        ["d, e", "3", "67 %", "25 %"],
    ]
    assert "Models were compared by" not in page.text


@pytest.mark.parametrize(
    ("features", "options", "warned"),
    [
        (4, {}, True),
        (9, {"similarity": "moments"}, True),
        (10, {}, False),
        (4, {"similarity": "rows"}, False),
        (4, {"peers": "random"}, False),
    ],
)
def test_few_features_are_warned_of(folder, features, options, warned):
    write_peers(folder, features, options)
    assert Peers.of(Run.load(folder)).few_features == warned


@pytest.mark.parametrize(("features", "said"), [(1, "1 number"), (4, "4 numbers")])
def test_the_warning_names_the_number_and_the_cure(folder, features, said):
    write_peers(folder, features, {})
    _, page = report(folder)
    assert f"compared by {said} each" in page.text
    assert "similarity=rows" in page.text


@pytest.mark.parametrize(("peers", "said"), [("similar", False), ("random", True)])
def test_random_peers_are_not_said_to_be_alike(folder, peers, said):
    write_peers(folder, 24, {"peers": peers})
    _, page = report(folder)
    assert ("Sites that are drawn at random help each other" in page.text) == said
    assert ("Sites whose models resemble each other help" in page.text) != said


def test_members_come_side_by_side_where_the_first_one_was():
    communities = [["e", "b"], ["c", "a", "x"]]
    order = by_community(["d", "a", "b", "c", "e"], communities)
    assert order == ["d", "a", "c", "b", "e"]
    assert blocks(order, communities) == [(3, 2), (1, 2)]
    assert by_community(["a", "b"], []) == ["a", "b"]
    assert blocks(["d", "e"], communities) == []


@pytest.mark.parametrize(("most", "shown"), [(1, "a"), (2, "ab"), (4, "abcd"), (5, "abcde")])
def test_of_many_sites_those_are_shown_that_helped_most_often(folder, most, shown):
    """a helped three times and b twice, all others once."""
    write_peers(folder, 24, {})
    assert frequent_peers(Run.load(folder), most) == list(shown)
