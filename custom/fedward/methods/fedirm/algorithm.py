"""FedIRM's rounds: all sites train together, and the server averages models and matrices."""

from collections.abc import Sequence
from dataclasses import replace

from fedward.methods.algorithm import Algorithm
from fedward.methods.fedirm.objective import FedIRMObjective, ramp_up
from fedward.methods.fedirm.relations import (
    NAME,
    ROWS,
    MeasuredRelation,
    WithoutRelation,
    add_relation,
    mean_relation,
)
from fedward.methods.fedirm.settings import FedIRMSettings
from fedward.methods.groups import (
    UNSUPERVISED,
    GroupedState,
    Groups,
    group_requirements,
)
from fedward.methods.local import Phase
from fedward.methods.mean_teacher import phases_by_group
from fedward.methods.requirements import Feature, Requirements, TensorRules
from fedward.methods.site_weights import images_of_group
from fedward.methods.workflow import ClientUpdate, Federation, Rounds
from fedward.model_state import State


class FedIRM(Algorithm[GroupedState]):
    """Inter-client relation matching.

    Fewer replies than asked for: see :class:`~fedward.methods.groups.Groups`, and

    - no site with labels was drawn: the relation matrix stays as it was
    - fewer sites with labels than :attr:`Federation.effective_replies` have a row for a class: the
      mean matrix has no row for it, and sites without labels leave it out of their comparison
    - no class has a row: sites without labels only follow their teachers
    """

    settings_type = FedIRMSettings
    state_type = GroupedState

    def __init__(self, settings: FedIRMSettings) -> None:
        self.settings = settings
        self.weight = images_of_group
        self.extend = add_relation
        self.requirements = _requirements(settings)
        self._groups = _GroupsWithRelations(settings)

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return a site's phases: with labels cross-entropy and a measurement, else one objective.

        The measurement uses the model that the site has just trained.
        """
        settings = self.settings
        factor = ramp_up(round_ - 1, settings.ramp_up)
        objective = FedIRMObjective(settings, factor)
        training = phases_by_group(settings, task, round_, labelled, objective)
        if not training or task == UNSUPERVISED:
            return training
        measurement = MeasuredRelation(settings.relation_temperature)
        return [*training, Phase(measurement, 0.0, stream=("relation",))]

    def rounds(self, state: GroupedState, federation: Federation) -> Rounds:
        """Go through rounds in which both groups train together."""
        return self._groups.rounds(state, federation, self._groups.together)


class _GroupsWithRelations(Groups):
    """Rounds of two groups, in which the relation matrices of sites with labels are averaged."""

    def average(
        self,
        updates: Sequence[ClientUpdate],
        state: GroupedState,
        federation: Federation,
        group: str,
        part: int,
    ) -> State:
        """Return the mean model, as other methods with groups do, with the mean relation matrix.

        Distances of models leave the matrices out. It is logged which classes have a row: their
        indices are ``known`` in the log of relations.
        """
        if not updates:
            return state.model
        networks = [replace(update, state=WithoutRelation(update.state)) for update in updates]
        model = super().average(networks, state, federation, group, part)
        labelled = [update for update in updates if update.labelled]
        if not labelled:
            return {**model, ROWS: state.model[ROWS]}
        rows = mean_relation(
            [update.state[ROWS] for update in labelled], federation.effective_replies
        )
        classes_with_row = rows.sum(dim=1).nonzero().flatten().tolist()
        federation.record(
            "relations",
            {
                "round": state.round + 1,
                "part": part,
                "sites": [update.site for update in labelled],
                "known": classes_with_row,
            },
        )
        return {**model, ROWS: rows}


def _requirements(settings: FedIRMSettings) -> Requirements:
    losses = frozenset({"loss_supervised", "loss_consistency", "loss_relation"})
    requirements = group_requirements(settings, losses, logs=frozenset({"kept"}))
    sends = replace(
        requirements.sends,
        records=requirements.sends.records | {"relations"},
        class_totals=True,
    )
    tensors = TensorRules(
        excluded={UNSUPERVISED: (f"{NAME}.",)},
        per_class=(f"{NAME}.",),
        distributions=(ROWS,),
    )
    reasons_against = {
        **requirements.reasons_against,
        Feature.SECURE_AGGREGATION: "relation matrices are averaged separately from models",
        Feature.SEVERAL_PROCESSES: "its uncertainty needs the inputs of the classifier",
    }
    return replace(requirements, sends=sends, tensors=tensors, reasons_against=reasons_against)
