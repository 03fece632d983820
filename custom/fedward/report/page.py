"""One self-contained page from run folders: values from tables, sentences from words, pictures from
figures.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from markupsafe import Markup

from fedward.evaluation.binned import INTERVALS
from fedward.evaluation.selection import POOLED
from fedward.report import (
    alone,
    clinical,
    comparison,
    drawing,
    figures,
    groups,
    labels,
    many,
    multiples,
    verdict,
    words,
)
from fedward.report.class_lines import class_lines
from fedward.report.communities import community_order
from fedward.report.reconstructions import Reconstructions
from fedward.report.template import template
from fedward.runs import pseudo_labels
from fedward.runs.choices import Choices, tested_values
from fedward.runs.exchanges import failures, merged_rounds, traffic_by_site
from fedward.runs.run import Run
from fedward.runs.site_lines import FEW, SiteLine, site_lines
from fedward.runs.titles import METRIC_TITLES, title_of

FAILURES_SHOWN = 50
Line: TypeAlias = dict[int, float]


def render(run: Run, others: Sequence[Run] = ()) -> str:
    """Return the report of a run as HTML, set beside ``others`` where there are some."""
    return template("report.html").render(_content(run, others))


def _content(run: Run, others: Sequence[Run]) -> dict[str, Any]:
    """Return the names of the template; a section without content is None or empty."""
    key = run.key_metric
    choices = Choices.of(run, key)
    sites = site_lines(run)
    shown = many.ends(run, choices, sites)
    long = many.long_lines(run, choices, sites)
    answers = clinical.Clinical.of(run, choices.reported)
    own, others = alone.split(run, others)
    joining = alone.compared(run, own)
    compared = comparison.comparisons([run, *others], key) if others else []
    metrics = run.label_kind.metric_names
    values = {name: tested_values(run, name, choices.reported) for name in metrics}
    return {
        "run": run,
        "key": title_of(key),
        "few": FEW,
        **_first_screen(run, choices, answers),
        "joining": joining,
        "findings": [
            *verdict.headline(choices, compared, run.unit),
            *(joining.sentences if joining else []),
            *words.findings(run, choices, sites),
        ],
        "settings": _settings(_used(run)),
        "sites": sites,
        "shown": shown,
        "many": len(sites) > many.MANY,
        "long": long,
        "quartiles": many.quartiles(long),
        "quartile_names": many.QUARTILES,
        "distribution": _distribution(run, choices),
        "labelled": _total(line.labelled for line in sites),
        "unlabelled": _total(line.unlabelled for line in sites),
        "choices": choices,
        "pooled": key in POOLED,
        "protocols": _protocols(choices, shown),
        "overall": values,
        "metrics": {name: METRIC_TITLES[name] for name in metrics},
        "clinical": answers,
        "pictures": answers.pictures(run.label_kind) if answers else {},
        "intervals": INTERVALS,
        "classes": class_lines(run, choices.reported),
        "rounds": merged_rounds(run),
        "bytes_by_site": traffic_by_site(run),
        "with_peers": any(row.peer_models for row in run.rounds),
        "failures": failures(run),
        "failures_shown": FAILURES_SHOWN,
        "comparisons": compared,
        "convergence": _convergence(run, choices, shown),
        "warm_up": words.warm_up(run),
        "peers": _peers(run),
        "groups": _groups(run, sites, shown),
        "labels": _labels(run, others, shown),
        "reconstructions": Reconstructions.load(run.folder),
        "kept": _kept(run),
        "judged": _judged(run),
        "cost": _cost(run),
        "comparison_figure": _comparison(run, others),
    }


def _first_screen(run: Run, choices: Choices, answers: clinical.Clinical | None) -> dict[str, Any]:
    """Return what a reader sees before anything else: how the run ended, on which images, and what
    it is worth.
    """
    baseline = verdict.baseline(run, choices)
    (synthetic, origin) = verdict.origin(run)
    return {
        "banner": words.banner(run),
        "synthetic": synthetic,
        "origin": origin,
        "unit": verdict.unit(run),
        "verdict": verdict.verdict(run, choices, baseline, answers.pooled.never if answers else ()),
        "baseline": baseline,
        "over_sites": verdict.over_sites(choices.end),
        "worst": verdict.worst(choices.end),
    }


def _protocols(choices: Choices, sites: Sequence[SiteLine]) -> list[tuple[Any, ...]]:
    """Return, for each site, its line and its choice under each protocol; None for a site never
    measured.
    """
    selections = (choices.end, choices.shared, choices.own)
    found = [{choice.site: choice for choice in selection.sites} for selection in selections]
    return [(line, *(by_site.get(line.site) for by_site in found)) for line in sites]


def _total(values: Iterable[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _distribution(run: Run, choices: Choices) -> Markup | None:
    """Return how the selected model's test values are spread over many sites."""
    values = tested_values(run, run.key_metric, choices.reported)
    return (
        figures.distribution(values, title_of(run.key_metric)) if len(values) > many.MANY else None
    )


def _convergence(run: Run, choices: Choices, shown: Sequence[SiteLine]) -> dict[str, Any] | None:
    lines = run.series("val", run.key_metric)
    if not lines:
        return None
    average = figures.mean_line(lines)
    best = {choice.site: choice.round for choice in choices.own.sites}
    few = {line.site: lines[line.site] for line in shown if line.site in lines}
    pictures = multiples.validation_curves(few, average, best)
    return {
        "figure": figures.convergence(
            lines, title_of(run.key_metric), run.warm_up, choices.shared.round
        ),
        "multiples": [
            (site, best[site], max(line.values()), pictures[site]) for site, line in few.items()
        ],
    }


def _peers(run: Run) -> dict[str, Any] | None:
    if not run.peers:
        return None
    newest = run.peers[-1]
    central = groups.frequent_peers(run, many.MANY)
    known, similarity = groups.similarity(run, central)
    order = community_order(similarity)
    sites = [known[i] for i in order]
    matrix = [[similarity[i][j] for j in order] for i in order]
    title = f"Similarity of the sites' models, up to round {newest.round}"
    names, shares = groups.peer_shares(run, central)
    at = sorted(
        range(len(names)), key=lambda i: sites.index(names[i]) if names[i] in sites else len(sites)
    )
    chosen = [names[i] for i in at]
    frequency = [[shares[i][j] for j in at] for i in at]
    helped = "Share of a site's peers that were each other site"
    return {
        "newest": newest,
        "most": len(central) if len(run.info.sites) > len(central) else None,
        "similarity": sites and figures.heat_map(sites, matrix, title, "site", "site"),
        "chosen": any(map(any, shares))
        and figures.heat_map(chosen, frequency, helped, "helped", "peer"),
    }


def _groups(run: Run, sites: Sequence[SiteLine], few: Sequence[SiteLine]) -> dict[str, Any] | None:
    lines = groups.group_lines(run, sites)
    contributed = [line for line in lines if line.weights]
    names = {line.site for line in few}
    if not contributed:
        return None
    shown = [line for line in contributed if line.site.site in names] or contributed[: many.MANY]
    colours = dict(
        zip(groups.GROUPS, (drawing.SERIES[0], drawing.SERIES[1], drawing.FAINT), strict=True)
    )
    pictures = multiples.weights(
        {line.site.site: line.weights for line in shown},
        {line.site.site: colours[line.group] for line in shown},
    )
    return {
        "lines": [line for line in lines if line.site.site in names],
        "sentence": words.grouping(run, lines),
        "weights": [(line, pictures[line.site.site]) for line in shown],
    }


def _labels(run: Run, others: Sequence[Run], shown: Sequence[SiteLine]) -> dict[str, Any] | None:
    lines = labels.label_lines(run)
    if not lines:
        return None
    names = {line.site for line in shown}
    curves = labels.site_curves(run)
    overall = _by_name(run, others, lambda each: labels.overall_curve(each, run.key_metric))
    most = max((max(curve) for curve in curves.values()), default=0)
    few = {site: curve for site, curve in curves.items() if site in names}
    return {
        "lines": [line for line in lines if line.site in names],
        "sentences": labels.sentences(run),
        "curve": curves and figures.label_curves(overall, title_of(run.key_metric)),
        "multiples": few and list(multiples.label_curves(few, most).items()),
    }


def _kept(run: Run) -> dict[str, Any] | None:
    """Return the figure of pseudo labels, and the mean share kept in the first and the last
    measured round.
    """
    lines = run.series("train", "kept")
    if not lines:
        return None
    mean = figures.mean_line(lines)
    return {
        "figure": figures.share_kept(lines, run.warm_up),
        "first": mean[min(mean)],
        "last": mean[max(mean)],
    }


def _judged(run: Run) -> dict[str, Any] | None:
    """Return how pseudo-labels compare with hidden labels, if a laboratory run noted it."""
    judged = pseudo_labels.judged(run)
    if judged is None:
        return None
    return {"figure": figures.kept_classes(judged.rounds, judged.kept), **vars(judged)}


def _cost(run: Run) -> dict[str, Any] | None:
    rounds = merged_rounds(run)
    if not rounds:
        return None
    peers = groups.peer_bytes(run)
    parts = {
        "global model, down": [
            (row.bytes_down - peers.get(row.round, 0.0)) / 1e6 for row in rounds
        ],
        "peers, down": [peers.get(row.round, 0.0) / 1e6 for row in rounds],
        "updates, up": [row.bytes_up / 1e6 for row in rounds],
    }
    if not any(parts["peers, down"]):
        del parts["peers, down"]
    after = [row for row in rounds if row.round > run.warm_up]
    peer_models = sum(row.peer_models for row in after)
    return {
        "traffic": figures.traffic([row.round for row in rounds], parts),
        "durations": figures.durations({row.round: row.seconds for row in rounds}),
        "peers_per_request": peer_models and peer_models / sum(len(row.asked) for row in after),
    }


def _comparison(run: Run, others: Sequence[Run]) -> Markup | None:
    means = _by_name(
        run, others, lambda each: figures.mean_line(each.series("val", run.key_metric))
    )
    return figures.comparison(means, title_of(run.key_metric)) if others and means else None


def _by_name(run: Run, others: Sequence[Run], line_of: Callable[[Run], Line]) -> dict[str, Line]:
    """Return name of a run -> its line, for the runs that have one."""
    runs = [run, *others]
    lines = {name: line_of(each) for name, each in zip(comparison.names(runs), runs, strict=True)}
    return {name: line for name, line in lines.items() if line}


def _used(run: Run) -> Mapping[str, Any]:
    """Return the experiment, without what is drawn for sites that have no images if all have said
    that they have.
    """
    told = run.info.synthetic
    own = bool(told) and not any(told.values())
    return {
        name: value
        for name, value in run.info.experiment.items()
        if not (own and name == "synthetic")
    }


def _settings(experiment: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten the experiment into (dotted name, value) pairs."""
    pairs: list[tuple[str, str]] = []
    for name, value in experiment.items():
        if isinstance(value, Mapping) and value:
            pairs += _settings(value, f"{prefix}{name}.")
        else:
            pairs.append(
                (
                    prefix + name,
                    ", ".join(map(str, value)) if isinstance(value, list) else str(value),
                )
            )
    return pairs
