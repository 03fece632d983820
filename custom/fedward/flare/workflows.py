"""The controllers that jobs name, one for each way a federation works; their arguments are the
method's settings.

What a controller does in a round is in the method's file below ``fedward/methods``; how it does it
over FLARE is in :mod:`fedward.flare.controller`.
"""

from typing import Any, Literal

from fedward.flare.controller import ExperimentController


class FedPerlController(ExperimentController, method="fedperl"):
    """Selects peers: a participant gets the mean of the ``committee`` sites' models most like its
    own.

    With their help it labels its images that have no label. Before ``warm_up`` rounds are over
    nobody has peers.
    Arguments: :class:`~fedward.methods.fedperl.settings.FedPerlSettings`.
    """


class IsoFedController(ExperimentController, method="isofed"):
    """Switches between two groups in every round: sites without labels train first, then those with
    labels.

    Each group has an average of its own, and every site adapts the model to its images before it
    trains.
    Arguments: :class:`~fedward.methods.isofed.IsoFedSettings`.
    """


class FedALController(ExperimentController, method="fedal"):
    """Has query rounds: every ``query_every`` rounds each site asks its people for labels,
    ``steps`` times in all.

    In between it averages. Arguments: :class:`~fedward.methods.fedal.queries.ActiveSettings`.
    """


class SelfFedController(ExperimentController, method="selffed"):
    """Runs two phases: ``pretraining_rounds`` in which sites learn without labels, then fine-tuning
    with them.

    In the second, the server may contrast public images of its own between two rounds. Arguments:
    :class:`~fedward.methods.selffed.settings.SelfFedSettings`.
    """


class OneShotController(ExperimentController, method="oneshot"):
    """Asks the sites once, for sums over the features of a frozen encoder, and computes the
    classifier from them.

    Arguments: :class:`~fedward.methods.oneshot.OneShotSettings`.
    """


class SurveyController(ExperimentController, method="survey"):
    """Asks the sites once what their images are, and trains nothing.

    Arguments: :class:`~fedward.methods.survey.SurveySettings`.
    """


class AveragingController(ExperimentController):
    """Averages the participants' models in every round, by the weights of the method: the
    baselines.

    Args:
        method: which of them; the other arguments are its settings.
    """

    def __init__(
        self,
        method: Literal["fedavg", "ssfl", "fedprox", "wfedavg", "mt_wfedavg", "rscfed"],
        **arguments: Any,
    ) -> None:
        self.method = method
        super().__init__(**arguments)


class MethodController(ExperimentController):
    """Runs a method that an installed package adds; docs/extending.md.

    Args:
        method: its name; the other arguments are its settings.
    """

    def __init__(self, method: str, **arguments: Any) -> None:
        self.method = method
        super().__init__(**arguments)
