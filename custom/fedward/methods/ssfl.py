"""Semi-supervised federated learning: federated averaging of sites that train with FixMatch."""

from collections.abc import Sequence

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.fedavg import federated_averaging
from fedward.methods.fixmatch import fixmatch, fixmatch_losses
from fedward.methods.local import Phase
from fedward.methods.pseudo_labels.settings import FixMatchSettings
from fedward.methods.requirements import Feature, Requirements, Sends, ServerNeeds
from fedward.methods.schedule import rate_of_round
from fedward.methods.server_labels import AT_SERVER, images_at_server, server_phase
from fedward.methods.site_weights import steps_taken
from fedward.methods.workflow import Federation, Rounds


class SSFL(Algorithm[ServerState]):
    """Federated averaging of FixMatch. With a single site it is FixMatch itself.

    Fewer replies than asked for: as in FedAvg, except that a site without labels trains on its
    pseudo-labels.

    With ``server_labels`` the server learns from labels, and all sites from pseudo-labels alone.
    """

    settings_type = FixMatchSettings
    state_type = ServerState

    def __init__(self, settings: FixMatchSettings) -> None:
        self.settings = settings
        self.weight = steps_taken
        self.requirements = Requirements(
            sends=Sends(losses=fixmatch_losses(settings), logs=frozenset({"kept"})),
            server=ServerNeeds(images=images_at_server(settings)),
            hidden_labels=settings.server_labels,
            reasons_against={Feature.SEVERAL_LABELS: settings.one_label},
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return FixMatch, perhaps with a proximal term; for the server's images, cross-entropy."""
        if self.settings.server_labels and task == AT_SERVER:
            return [server_phase(self.settings, round_)]
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        return [Phase(fixmatch(self.settings), rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Average, as FedAvg does."""
        return federated_averaging(state, federation, self.settings, self.weight)
