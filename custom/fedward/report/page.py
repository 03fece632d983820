"""One self-contained page from run folders: values from tables, sentences from words, pictures from figures."""

from collections.abc import Mapping, Sequence
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fedward.evaluation.selection import mean
from fedward.report import figures, groups, labels, tables, words
from fedward.report.reconstructions import Reconstructions
from fedward.report.run import Run

FAILURES_SHOWN = 50


def render(run: Run, others: Sequence[Run] = ()) -> str:
    """Return the report of a run as HTML, set beside ``others`` where there are some."""
    environment = Environment(
        loader=PackageLoader("fedward", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"num": _number, "mb": _megabytes, "upfirst": _upfirst}
    return environment.get_template("report.html").render(_content(run, others))


def _content(run: Run, others: Sequence[Run]) -> dict[str, Any]:
    key = run.key_metric
    choices = tables.Choices.of(run, key)
    sites = tables.site_lines(run)
    overall = _overall(run, choices.reported)
    return {
        "run": run,
        "key": tables.title_of(key),
        "few": tables.FEW,
        "banner": words.banner(run),
        "findings": words.findings(run, choices, sites),
        "settings": _settings(run.info.experiment),
        "sites": sites,
        "labelled": _total([line.labelled for line in sites]),
        "unlabelled": _total([line.unlabelled for line in sites]),
        "choices": choices,
        "protocols": list(zip(sites, *_by_site(run, choices), strict=True)),
        "overall": list(zip(sites, overall, strict=True)) if overall else [],
        "overall_mean": {name: mean(line[name] for line in overall) for name in tables.OVERALL},
        "metrics": tables.OVERALL,
        "classes": tables.class_lines(run, choices.reported),
        "rounds": tables.merged_rounds(run),
        "bytes_by_site": _bytes_by_site(run),
        "with_peers": any(row.peer_models for row in run.rounds),
        "peer_overhead": _peer_overhead(run),
        "failures": _failures(run),
        "failures_shown": FAILURES_SHOWN,
        "comparisons": tables.comparisons([run, *others], key) if others else [],
        **_curves(run, choices),
        "warm_up": words.warm_up(run),
        **_peers(run),
        **_groups(run, sites),
        **_labels(run, others),
        "reconstructions": Reconstructions.load(run.folder),
        **_costs(run),
        "comparison_figure": _comparison(run, others),
    }


def _by_site(run: Run, choices: tables.Choices) -> list[list[Any]]:
    """Return, per protocol, the choices in the order of the run's sites; None for a site never measured."""
    selections = (choices.own, choices.shared, choices.last)
    found = [{choice.site: choice for choice in selection.sites} for selection in selections]
    return [[by_site.get(site) for site in run.info.sites] for by_site in found]


def _overall(run: Run, round_: int | None) -> list[dict[str, float | None]]:
    """Return, in the order of the run's sites, metric -> test value of the selected model; empty without any value."""
    lines: list[dict[str, float | None]] = []
    for site in run.info.sites:
        rows = run.at(site, "test", round_)
        lines.append({name: rows[name].value if name in rows else None for name in tables.OVERALL})
    return lines if any(value is not None for line in lines for value in line.values()) else []


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _curves(run: Run, choices: tables.Choices) -> dict[str, Any]:
    lines = run.series("val", run.key_metric)
    if not lines:
        return {"convergence": None, "multiples": []}
    average = figures.mean_line(lines)
    best = {choice.site: choice.round for choice in choices.own.sites}
    return {
        "convergence": Markup(
            figures.convergence(lines, tables.title_of(run.key_metric), run.warm_up, choices.shared.round)
        ),
        "multiples": [
            (site, best[site], max(line.values()), Markup(figures.small_multiple(site, line, average, best[site])))
            for site, line in lines.items()
        ],
    }


def _peers(run: Run) -> dict[str, Any]:
    if not run.peers:
        return {"similarity": None, "chosen": None, "peer_round": None, "anonymised": False}
    newest = run.peers[-1]
    order = figures.community_order(newest.similarity)
    sites = [newest.sites[i] for i in order]
    matrix = [[newest.similarity[i][j] for j in order] for i in order]
    names, shares = groups.peer_shares(run)
    rank = {site: place for place, site in enumerate(sites)}
    at = sorted(range(len(names)), key=lambda i: rank.get(names[i], len(rank)))
    frequency = [[shares[i][j] for j in at] for i in at]
    return {
        "similarity": Markup(
            figures.heat_map(sites, matrix, f"Similarity of the sites' models, round {newest.round}", "site", "site")
        )
        if sites
        else None,
        "chosen": Markup(
            figures.heat_map(
                [names[i] for i in at], frequency, "Share of a site's peers that were each other site", "helped", "peer"
            )
        )
        if any(map(any, shares))
        else None,
        "peer_round": newest.round,
        "anonymised": newest.anonymised,
    }


def _groups(run: Run, sites: Sequence[tables.SiteLine]) -> dict[str, Any]:
    lines = groups.group_lines(run, sites)
    shown = [line for line in lines if line.weights]
    if not shown:
        return {"groups": [], "grouping": "", "weights": []}
    last = max(max(line.weights) for line in shown)
    top = max(max(line.weights.values()) for line in shown) * 1.1
    colours = dict(zip(groups.GROUPS, (figures.SERIES[0], figures.SERIES[1], figures.FAINT), strict=True))
    return {
        "groups": lines,
        "grouping": words.grouping(run, lines),
        "weights": [
            (line, Markup(figures.site_weights(line.site.site, line.weights, last, top, colours[line.group])))
            for line in shown
        ],
    }


def _labels(run: Run, others: Sequence[Run]) -> dict[str, Any]:
    curves = {site: curve for site, curve in labels.site_curves(run).items() if any(curve)}
    runs = [run, *others]
    overall = {
        name: curve
        for name, each in zip(tables.names(runs), runs, strict=True)
        if any(curve := labels.overall_curve(each, run.key_metric))
    }
    most = max((max(curve) for curve in curves.values()), default=0)
    return {
        "label_lines": labels.label_lines(run),
        "label_sentences": labels.sentences(run),
        "label_curve": Markup(figures.label_curves(overall, tables.title_of(run.key_metric))) if curves else None,
        "label_multiples": [
            (site, Markup(figures.site_label_curve(site, curve, most))) for site, curve in curves.items()
        ],
    }


def _costs(run: Run) -> dict[str, Any]:
    rounds = tables.merged_rounds(run)
    kept = run.series("train", "kept")
    content: dict[str, Any] = {"kept": None, "kept_mean": None, "traffic": None, "durations": None}
    if kept:
        line = figures.mean_line(kept)
        content |= {
            "kept": Markup(figures.share_kept(kept, run.warm_up)),
            "kept_mean": (line[min(line)], line[max(line)]),
        }
    if rounds:
        peers = groups.peer_bytes(run)
        at = [row.round for row in rounds]
        parts = {
            "global model, down": [(row.bytes_down - peers.get(row.round, 0.0)) / 1e6 for row in rounds],
            "peers, down": [peers.get(row.round, 0.0) / 1e6 for row in rounds],
            "updates, up": [row.bytes_up / 1e6 for row in rounds],
        }
        if not any(parts["peers, down"]):
            del parts["peers, down"]
        content["traffic"] = Markup(figures.traffic(at, parts))
        content["durations"] = Markup(figures.durations({row.round: row.seconds for row in rounds}))
    return content


def _comparison(run: Run, others: Sequence[Run]) -> Markup | None:
    runs = [run, *others]
    means = {
        name: figures.mean_line(lines)
        for name, each in zip(tables.names(runs), runs, strict=True)
        if (lines := each.series("val", run.key_metric))
    }
    return Markup(figures.comparison(means, tables.title_of(run.key_metric))) if others and means else None


def _bytes_by_site(run: Run) -> dict[str, tuple[int, int, int]]:
    """Return site -> (bytes down, bytes up, peer models) over the whole run."""
    total = dict.fromkeys(run.info.sites, (0, 0, 0))
    for row in run.bytes:
        down, up, peers = total.get(row.site, (0, 0, 0))
        total[row.site] = (down + row.down, up + row.up, peers + row.peer_models)
    return total


def _peer_overhead(run: Run) -> float | None:
    """Return the peer models sent for each model asked to train, after the warm-up; None without peers."""
    after = [row for row in tables.merged_rounds(run) if row.round > run.warm_up]
    asked, peers = sum(len(row.asked) for row in after), sum(row.peer_models for row in after)
    return peers / asked if peers else None


def _failures(run: Run) -> list[tuple[int | str, str, str]]:
    """Return (round, site, reason); first those of the last evaluation, which no other table tells of."""
    last = [("last evaluation", site, reason) for site, reason in run.info.summary.not_evaluated.items()]
    return [*last, *((row.round, site, reason) for row in run.rounds for site, reason in row.failed.items())]


def _settings(experiment: Mapping[str, Any], prefix: str = "") -> list[tuple[str, str]]:
    """Flatten the experiment into (dotted name, value) pairs."""
    pairs: list[tuple[str, str]] = []
    for name, value in experiment.items():
        if isinstance(value, Mapping) and value:
            pairs += _settings(value, f"{prefix}{name}.")
        else:
            shown = ", ".join(map(str, value)) if isinstance(value, list) else str(value)
            pairs.append((prefix + name, shown))
    return pairs


def _number(value: float | None, digits: int = 3) -> str:
    return "n/a" if value is None else f"{value:.{digits}f}"


def _megabytes(count: float) -> str:
    return f"{count / 1e6:,.1f}"


def _upfirst(text: str) -> str:
    """Return the text with a capital first letter and the rest as it is: macro AUROC is no Macro auroc."""
    return text[:1].upper() + text[1:]
