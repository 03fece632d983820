"""FedAL's rounds: FedAvg whose sites buy labels at fixed rounds.

Deng et al., arXiv 2406.11310, Alg. 1.
"""

from collections.abc import Sequence

from fedward.methods.algorithm import Algorithm, ServerState
from fedward.methods.auxiliary import HEADS, SupervisedWithHeads, add_heads
from fedward.methods.fedal.query_rounds import ActiveLearning, ActiveSettings
from fedward.methods.fedavg import federated_averaging
from fedward.methods.local import Phase
from fedward.methods.requirements import Feature, Requirements, Sends, TensorRules
from fedward.methods.schedule import rate_of_round
from fedward.methods.site_weights import labelled_images
from fedward.methods.supervised import Supervised
from fedward.methods.workflow import QUERY, TRAIN, Federation, Rounds


class FedAL(Algorithm[ServerState]):
    """FedAvg on the images labelled so far, with sites weighted by their number of labels.

    What happens with fewer replies than asked for is as in FedAvg, and:

    - a site misses a query: it asks for the missing labels at its next query; after the last query
      it asks in its next round
    - a site has not trained before: the global model takes the place of its own in the ensemble,
      and its log says so
    - labels do not come: the site trains on those it has, or waits first, as its site file says
    """

    settings_type = ActiveSettings
    state_type = ServerState
    active: ActiveLearning

    def __init__(self, settings: ActiveSettings) -> None:
        self.settings = settings
        # Eq. (2) counts the images that are labelled at present, not those of the beginning.
        self.weight = labelled_images
        self.active = ActiveLearning(settings)
        self._trains_heads = self.active.sampler.uses.heads
        if self._trains_heads:
            self.extend = add_heads
        reasons_against = {Feature.SEVERAL_LABELS: settings.one_label}
        if self._trains_heads:
            reasons_against[Feature.SEVERAL_PROCESSES] = (
                "the sampler trains auxiliary heads beside the network"
            )
        self.requirements = Requirements(
            tasks=frozenset({TRAIN, QUERY}),
            sends=Sends(losses=frozenset({"loss_supervised"})),
            tensors=TensorRules(per_class=(f"{HEADS}.",)),
            reasons_against=reasons_against,
        )

    def phases(self, task: str, round_: int, labelled: int) -> Sequence[Phase]:
        """Return one phase of cross-entropy on the labelled images."""
        rate = rate_of_round(self.settings.learning_rate, round_, self.settings)
        objective = SupervisedWithHeads(self.settings, rate) if self._trains_heads else Supervised()
        return [Phase(objective, rate)]

    def rounds(self, state: ServerState, federation: Federation) -> Rounds:
        """Deng et al., Alg. 1: in some rounds the sites ask for labels before they train."""
        return federated_averaging(state, federation, self.settings, self.weight, self.active.task)
