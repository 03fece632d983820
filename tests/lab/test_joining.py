"""What joining brings to each site of a study: worked by hand, paired by seed, on the same images
alone.
"""

from fedward.lab.bench.joining import SiteValues, joining_table

METRICS = {"accuracy": "Accuracy"}


def results(*seeds: dict[str, tuple[int, float]]) -> dict[int, SiteValues]:
    """Return what sites have in seeds 1, 2 and so on, from site -> (test images, accuracy)."""
    told = [
        {site: {"images": n, "accuracy": value} for site, (n, value) in sites.items()}
        for sites in seeds
    ]
    return dict(enumerate(told, 1))


def cells(text: str) -> dict[str, list[str]]:
    lines = [
        [cell.strip() for cell in line.split("|")[1:-1]]
        for line in text.splitlines()
        if line.startswith("|")
    ]
    return {first: rest for first, *rest in lines}


def test_each_site_and_their_mean_are_paired_by_seed() -> None:
    alone = results(
        {"site-2": (9, 0.5), "site-10": (9, 0.9)}, {"site-2": (9, 0.6), "site-10": (9, 0.9)}
    )
    joined = results(
        {"site-2": (9, 0.7), "site-10": (9, 0.8)}, {"site-2": (9, 0.9), "site-10": (9, 0.8)}
    )
    text = joining_table("Title", METRICS, alone, joined)
    found = cells(text)
    assert text.startswith("Title\n\n|")
    assert [name for name in found if name.startswith(("site-", "mean"))] == [
        "site-2",
        "site-10",
        "mean over sites",
    ]
    # differences 0.2 and 0.3: mean 0.25, half width 12.706 * 0.0707 / sqrt(2) = 0.635
    assert found["site-2"] == ["2", "0.550 ± 0.071", "0.800 ± 0.141", "+0.250 [-0.385, +0.885]"]
    assert found["site-10"] == ["2", "0.900 ± 0.000", "0.800 ± 0.000", "-0.100 [-0.100, -0.100]"]
    # each seed counts with the mean of its sites: 0.05 and 0.1
    assert found["mean over sites"] == [
        "2",
        "0.725 ± 0.035",
        "0.800 ± 0.071",
        "+0.075 [-0.243, +0.393]",
    ]


def test_a_site_is_compared_on_the_same_images_alone() -> None:
    alone = results({"site-1": (9, 0.5), "site-2": (8, 0.5)}, {"site-1": (9, 0.5)})
    joined = results({"site-1": (9, 0.6), "site-2": (9, 0.9), "site-3": (9, 0.9)})
    found = cells(joining_table("Title", METRICS, alone, joined))
    assert "site-2" not in found
    assert "site-3" not in found
    assert found["site-1"] == found["mean over sites"] == ["1", "0.500", "0.600", "+0.100"]


def test_results_that_tell_of_no_site_have_no_table() -> None:
    assert joining_table("Title", METRICS, results({"site-1": (9, 0.5)}), results({})) == ""
    assert joining_table("Title", METRICS, {}, {}) == ""


def test_fine_tuning_is_compared_with_the_federations_model() -> None:
    alone = results({"site-1": (9, 0.5), "site-2": (9, 0.4)})
    joined = results({"site-1": (9, 0.6), "site-2": (9, 0.6)})
    tuned = results({"site-1": (9, 0.55), "site-2": (8, 0.9)})
    text = joining_table("Title", METRICS, alone, joined, tuned)
    found = cells(text)
    assert found["site"][1:] == [
        "Accuracy, alone",
        "Accuracy, joined",
        "Accuracy, what joining brings",
        "Accuracy, fine-tuned",
        "Accuracy, what fine-tuning brings",
    ]
    assert (
        found["site-1"]
        == found["mean over sites"]
        == ["1", "0.500", "0.600", "+0.100", "0.550", "-0.050"]
    )
    assert "site-2" not in found  # it was fine-tuned on other images
