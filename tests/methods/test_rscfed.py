"""RSCFed: random passes, their weights, and the mean of their means."""

import math
from typing import Any

import pytest
import torch
from grouped import FOUR, Server, assert_close, assert_same, model, moved, plain_mean, plain_weights

from fedward.methods.averages import weighted_average
from fedward.methods.distances import distance_weights, images_and_distances
from fedward.methods.rscfed import RSCFed, RSCFedSettings
from fedward.methods.workflow import ClientUpdate, Exchange

EIGHT = {**FOUR, "site-5": (0, 40), "site-6": (0, 70), "site-7": (15, 10), "site-8": (0, 60)}
LABELLED = {site for site, (labelled, _) in EIGHT.items() if labelled}


def server(seed: int = 0, **fields: Any) -> Server:
    options = {"rounds": 4, "warm_up": 1, "distance_scale": 10.0, "unlabelled_distance_scale": 40.0}
    return Server("rscfed", {**options, **fields.pop("options", {})}, EIGHT, seed, **fields)


def consensus(updates: list[ClientUpdate], factor: float = 6.0) -> dict[str, Any]:
    scale = 10.0 if any(update.labelled for update in updates) else 40.0
    return plain_mean(
        [update.state for update in updates], plain_weights(updates, scale, factor=factor)
    )


def mean(models: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: sum(one[key] for one in models) / len(models) for key in models[0]}


# --- passes


def test_a_round_has_three_passes_of_three_distinct_sites() -> None:
    run = server().run()
    assert run.parts() == [(1, 0)] + [(round_, part) for round_ in (2, 3, 4) for part in (0, 1, 2)]
    for exchange in run.exchanges[1:]:
        assert len(set(exchange.tasks)) == 3
        assert set(exchange.tasks) <= set(EIGHT)
        assert exchange.model is run.after[exchange.round - 1]
        for site, task in exchange.tasks.items():
            assert task.name == ("supervised" if site in LABELLED else "unsupervised")
            assert not task.models


@pytest.mark.parametrize(("passes", "sites"), [(1, 1), (2, 5), (5, 2), (3, 8), (2, 99)])
def test_passes_and_their_sites_are_settings(passes: int, sites: int) -> None:
    run = server(options={"passes": passes, "sites_per_pass": sites, "rounds": 3}).run()
    assert [part for round_, part in run.parts() if round_ == 3] == list(range(passes))
    assert all(len(exchange.tasks) == min(sites, 8) for exchange in run.exchanges[1:])


def test_draws_depend_on_the_seed_the_round_and_the_pass_alone() -> None:
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(len(drawn))
        run = server(
            seed,
            options={"rounds": 9},
            fails=lambda exchange, site, seed=seed: seed == 4 and site == "site-2",
        )
        drawn.append(
            {
                (exchange.round, exchange.part): tuple(exchange.tasks)
                for exchange in run.run().exchanges[1:]
            }
        )
    assert drawn[0] == drawn[1] != drawn[2]
    assert len(set(drawn[0].values())) > 12
    assert any(len({drawn[0][round_, part] for part in range(3)}) > 1 for round_ in range(2, 10))
    counts = [sum(site in sites for sites in drawn[0].values()) for site in EIGHT]
    assert min(counts) > 0, "24 passes of 3 of 8: each site is drawn 9 times on average"


def test_one_pass_does_not_change_when_there_are_more() -> None:
    few, many = (server(options={"passes": passes}).run() for passes in (2, 4))
    for round_ in (2, 3):
        for part in (0, 1):
            assert list(few.of(round_, part).tasks) == list(many.of(round_, part).tasks)


def test_a_site_drawn_twice_trains_twice_from_the_same_model() -> None:
    run = server(options={"sites_per_pass": 8, "rounds": 2}).run()
    states = [{update.site: update.state for update in run.trained(2, part)} for part in range(3)]
    assert all(set(state) == set(EIGHT) for state in states)
    for site in EIGHT:
        assert not torch.equal(states[0][site]["w"], states[1][site]["w"])
        assert_same(states[1][site], moved(run.after[1], site, 2, 1))


# --- weights


def test_the_model_is_the_plain_mean_of_the_passes() -> None:
    """However many images the sites of a pass have."""
    run = server().run()
    for round_ in (2, 3, 4):
        passes = [consensus(run.trained(round_, part)) for part in range(3)]
        assert_close(run.after[round_], mean(passes))


def test_the_log_has_each_passes_weights_and_distances() -> None:
    run = server().run()
    assert [(row["round"], row["part"]) for row in run.groups] == run.parts()
    for row in run.groups[1:]:
        updates = run.trained(row["round"], row["part"])
        scale = 10.0 if any(update.labelled for update in updates) else 40.0
        assert row["group"] == "all"
        assert row["sites"] == [update.site for update in updates]
        assert row["weights"] == pytest.approx(plain_weights(updates, scale, factor=6.0), rel=1e-5)
        assert row["distances"] == pytest.approx(
            images_and_distances(updates, "sum", 1.0)[1].tolist()
        )
    kinds = {any(site in LABELLED for site in row["sites"]) for row in run.groups[1:]}
    assert kinds == {True, False}, "both scales were seen"


def replies_of(sites: dict[str, tuple[int, int]]) -> list[ClientUpdate]:
    return [
        ClientUpdate(site, moved(model(1.0), site), *images, 4) for site, images in sites.items()
    ]


def weights(updates: list[ClientUpdate], **options: Any) -> list[float]:
    method = RSCFed(RSCFedSettings.model_validate(options))
    found: list[float] = method.weights(
        updates, *images_and_distances(updates, "sum", 1.0)
    ).tolist()
    assert sum(found) == pytest.approx(1, rel=1e-14)
    return found


def test_weights_by_hand() -> None:
    """Equal images and a scale of 0: 6 : 1 : 1; two labelled sites 6 : 6 : 1."""
    equal = {"distance_scale": 0.0}
    assert weights(
        replies_of({"a": (10, 0), "b": (0, 10), "c": (0, 10)}), **equal
    ) == pytest.approx([6 / 8, 1 / 8, 1 / 8])
    assert weights(
        replies_of({"a": (10, 0), "b": (0, 10), "c": (10, 0)}), **equal
    ) == pytest.approx([6 / 13, 1 / 13, 6 / 13])
    sizes = replies_of({"a": (10, 0), "b": (0, 30)})
    assert weights(sizes, **equal) == pytest.approx([60 / 90, 30 / 90])


@pytest.mark.parametrize("factor", [0.5, 1.0, 6.0, 200.0])
def test_the_factor_of_labelled_sites_acts_once(factor: float) -> None:
    """Twice it would be 36; and it does not shift the mean from which distances are measured."""
    updates = replies_of({"a": (30, 0), "b": (0, 80), "c": (20, 5), "d": (0, 50)})
    pass_weights = weights(updates, labelled_factor=factor, distance_scale=7.0)
    assert pass_weights == pytest.approx(plain_weights(updates, 7.0, factor=factor), rel=1e-5)
    plain = weights(updates, labelled_factor=1.0, distance_scale=7.0)
    assert pass_weights[0] / pass_weights[1] == pytest.approx(
        factor * plain[0] / plain[1], rel=1e-9
    )
    assert pass_weights[0] / pass_weights[2] == pytest.approx(plain[0] / plain[2], rel=1e-9)


def test_a_factor_of_one_is_wfedavg() -> None:
    updates = replies_of({"a": (30, 0), "b": (0, 80), "c": (20, 5)})
    pass_weights = weights(updates, labelled_factor=1.0, distance_scale=7.0)
    assert pass_weights == pytest.approx(
        distance_weights(*images_and_distances(updates, "sum", 1.0), 7.0).tolist(), rel=1e-14
    )


def test_where_all_have_labels_it_is_wfedavg_to_the_last_bit() -> None:
    """As in the warm-up, whose models are those of the other methods."""
    updates = replies_of({"a": (30, 0), "b": (80, 0), "c": (20, 5)})
    measured = images_and_distances(updates, "sum", 1.0)
    method = RSCFed(RSCFedSettings(labelled_factor=0.3, distance_scale=7.0))
    assert torch.equal(method.weights(updates, *measured), distance_weights(*measured, 7.0))


@pytest.mark.parametrize(("labelled", "scale"), [(True, 3.0), (False, 50.0)])
def test_the_scale_depends_on_labelled_sites_in_the_pass(labelled: bool, scale: float) -> None:
    updates = replies_of({"a": (30, 0) if labelled else (0, 30), "b": (0, 80), "c": (0, 20)})
    pass_weights = weights(
        updates, labelled_factor=1.0, distance_scale=3.0, unlabelled_distance_scale=50.0
    )
    assert pass_weights == pytest.approx(plain_weights(updates, scale), rel=1e-5)


def test_the_scale_of_unlabelled_passes_keeps_some_weight() -> None:
    updates = replies_of({"b": (0, 3), "c": (0, 2)})
    assert all(
        math.exp(-1e4 * d / n) == 0
        for n, d in zip(*images_and_distances(updates, "sum", 1.0), strict=True)
    )
    assert weights(updates) == pytest.approx([1.0, 0.0], abs=1e-100)


def test_defaults_are_the_authors() -> None:
    defaults = RSCFedSettings()
    assert (defaults.passes, defaults.sites_per_pass, defaults.labelled_factor) == (3, 3, 6.0)
    assert (defaults.distance_scale, defaults.unlabelled_distance_scale) == (100.0, 1e4)


# --- fewer replies than asked for


def test_a_pass_without_replies_is_left_out_of_the_mean() -> None:
    run = server(fails=lambda exchange, site: (exchange.round, exchange.part) == (2, 1)).run()
    assert_close(run.after[2], mean([consensus(run.trained(2, part)) for part in (0, 2)]))
    assert [row["part"] for row in run.groups if row["round"] == 2] == [0, 2]


def test_a_round_without_replies_keeps_the_model() -> None:
    run = server(fails=lambda exchange, site: exchange.round == 3).run()
    assert_same(run.after[3], run.after[2])
    assert run.state.round == 4


def test_within_a_pass_the_mean_is_over_those_that_replied() -> None:
    run = server(
        fails=lambda exchange, site: exchange.round == 2 and site in ("site-2", "site-6", "site-1")
    ).run()
    replied = [run.trained(2, part) for part in range(3)]
    assert any(0 < len(updates) < 3 for updates in replied)
    assert_close(run.after[2], mean([consensus(updates) for updates in replied if updates]))


def test_silent_labelled_sites_keep_the_model() -> None:
    """Whatever the unlabelled ones send."""
    run = server(fails=lambda exchange, site: exchange.round == 3 and site in LABELLED).run()
    assert LABELLED & {site for part in range(3) for site in run.of(3, part).tasks}
    assert any(run.trained(3, part) for part in range(3))
    assert_same(run.after[3], run.after[2])


def test_a_round_of_silent_sites_without_labels_keeps_the_model() -> None:
    """No site with labels was drawn, so that none of them is missing."""
    run = Server(
        "rscfed",
        {"passes": 1, "sites_per_pass": 1, "rounds": 9},
        {"site-1": (30, 0), "site-2": (20, 0), "site-3": (0, 9)},
        fails=lambda exchange, site: exchange.round > 1 and site == "site-3",
    ).run()
    silent = [exchange.round for exchange in run.exchanges if [*exchange.tasks] == ["site-3"]]
    assert silent
    for round_ in silent:
        assert_same(run.after[round_], run.after[round_ - 1])


@pytest.mark.parametrize("name", ["rscfed", "mt_wfedavg"])
def test_a_run_goes_on_however_often_no_labelled_site_is_drawn(name: str) -> None:
    """One labelled site of ten is not in every round; nobody has failed then."""
    sites = {f"site-{index}": (20, 0) if index == 1 else (0, 30) for index in range(1, 11)}
    options = {"rounds": 200} if name == "rscfed" else {"rounds": 200, "participants": 3}
    run = Server(
        name,
        options,
        sites,
        answer=lambda exchange, site: moved(exchange.model, site, exchange.round, size=0.01),
    ).run()
    assert run.state.round == 200
    without = set(range(9, 201)) - {
        exchange.round for exchange in run.exchanges if "site-1" in exchange.tasks
    }
    assert len(without) > 30
    for round_ in without:
        assert (run.after[round_]["w"] != run.after[round_ - 1]["w"]).any()


def test_one_pass_of_one_site_is_that_sites_model() -> None:
    sites = {"site-1": (30, 0), "site-2": (20, 0), "site-3": (0, 9)}
    run = Server("rscfed", {"passes": 1, "sites_per_pass": 1, "rounds": 9}, sites).run()
    kinds = set()
    for round_ in range(2, 10):
        (update,) = run.trained(round_)
        assert_same(run.after[round_], update.state)
        kinds.add(update.labelled > 0)
    assert kinds == {True, False}


def test_equal_passes_are_returned_exactly() -> None:
    """The mean of three equal models is that model."""
    fixed = moved(model(2.0), "fixed")
    run = server(answer=lambda exchange, site: fixed).run()
    assert_same(run.after[2], weighted_average([fixed], [1.0]))


# --- groups are learned


def test_an_unknown_site_declines_and_is_known_from_then_on() -> None:
    run = server(options={"warm_up": 0, "sites_per_pass": 8, "rounds": 1}).run()
    assert set(run.tasks(1, 0).values()) == {"supervised"}
    assert {update.site for update in run.trained(1, 0)} == LABELLED
    assert {site for site, task in run.tasks(1, 1).items() if task == "supervised"} == LABELLED
    assert len(run.trained(1, 1)) == 8


@pytest.mark.parametrize("site", ["site-3", "site-4"])
def test_a_site_that_changes_its_group_declines_one_pass(site: str) -> None:
    def images(exchange: Exchange, name: str) -> tuple[int, int]:
        return EIGHT[name][::-1] if name == site and exchange.round >= 3 else EIGHT[name]

    run = server(options={"sites_per_pass": 8, "rounds": 3}, images=images).run()
    assert site not in [update.site for update in run.trained(3, 0)]
    assert run.tasks(3, 1)[site] == ("supervised" if site == "site-4" else "unsupervised")
    assert site in [update.site for update in run.trained(3, 1)]
