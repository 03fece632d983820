"""Reads the file of a study."""

from pathlib import Path

from pydantic import ValidationError

from fedward.errors import ConfigError, UnreadableJsonError, reason_of
from fedward.faults import explain, names_in
from fedward.json_text import read_json_file
from fedward.lab.bench.study import Study
from fedward.lab.bench.study_parts import METRICS, Cell, Claim, Row, Variant
from fedward.methods import method_of


def read_study(file: Path) -> Study:
    """Read a study.

    Raises:
        ConfigError: the file cannot be read, a field or value is wrong, a setting is of no row's
            method, or rounds are chosen by a metric that no line records, or by several rules.
    """
    try:
        content = read_json_file(file, unique_keys=True)
        study = Study.model_validate(content)
    except ValidationError as error:
        fields = [*names_in(Study), *names_in(Row), *names_in(Variant), *names_in(Claim)]
        raise explain(error, f"study {file}", content, fields) from None
    except (OSError, UnreadableJsonError) as error:
        raise ConfigError(
            f"study {file}",
            "Name a file such as those in benchmarks/studies, or repair it.",
            expected="a JSON file, each key once",
            found=reason_of(error),
        ) from None
    unused = study.unused({})
    if unused:
        raise ConfigError(
            f"study {file}, settings",
            "Correct the names.",
            expected="settings that some row's method has",
            found=", ".join(unused),
        )
    _require_rule(study, file)
    return study


def _require_rule(study: Study, file: Path) -> None:
    """Raise ConfigError unless lines record the metric by which each row stops.

    Where the study has claims, or cuts its images again for each repetition, all rows must stop by
    one rule, so that none has more rounds to choose: the metric that chooses a round, and how often
    models are evaluated. Rows of one round have no choice.
    """
    rules: dict[tuple[str, int], Cell] = {}
    for variant in study.variants:
        for row in study.rows_of(variant):
            cell = Cell(variant, row, study.seeds[0])
            experiment = study.experiment(cell)
            if experiment.key_metric not in METRICS:
                raise ConfigError(
                    f"study {file}, row {row}",
                    "Name another key_metric.",
                    expected=f"one of {', '.join(METRICS)}",
                    found=experiment.key_metric,
                )
            if method_of(experiment).settings.rounds > 1:
                rules.setdefault((experiment.key_metric, experiment.evaluate_every), cell)
    if len(rules) > 1 and (study.partition or study.claims):
        raise ConfigError(
            f"study {file}",
            "Give all rows the same key_metric and evaluate_every.",
            expected="one rule by which all rows stop",
            found=", ".join(
                f"{cell.row}: best {metric} of every {every} rounds"
                for (metric, every), cell in rules.items()
            ),
        )
