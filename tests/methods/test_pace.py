"""How many images a phase takes: by hand, for each setting and kind of objective."""

import pytest

from fedward.methods.local import Uses
from fedward.methods.settings import Settings
from fedward.methods.steps import DrawnFrom, most_steps, phase_images

BOTH = Uses(unlabelled="unlabelled")
LABELS_SET_THE_PACE = Uses(unlabelled="unlabelled", pace="labelled")
ALL_WITHOUT_LABELS = Uses(labelled=False, unlabelled="all")


@pytest.mark.parametrize(
    ("uses", "drawn_from"),
    [
        (Uses(), (10, 0)),
        (BOTH, (10, 25)),
        (LABELS_SET_THE_PACE, (10, 25)),
        (Uses(unlabelled="all"), (10, 35)),
        (ALL_WITHOUT_LABELS, (0, 35)),
    ],
)
def test_what_a_phase_draws_from(uses: Uses, drawn_from: tuple[int, int]) -> None:
    assert DrawnFrom.of(uses, labelled=10, unlabelled=25) == drawn_from


@pytest.mark.parametrize(
    ("uses", "drawn_from", "passes", "at_most", "per_round"),
    [
        # Columns: two passes; the same, ended after 30 images; 48 images whatever the site has.
        (Uses(), (10, 0), 20, 20, 48),
        (BOTH, (10, 25), 50, 30, 48),
        (BOTH, (0, 25), 50, 30, 48),
        (LABELS_SET_THE_PACE, (10, 25), 20, 20, 48),
        (LABELS_SET_THE_PACE, (0, 25), 0, 0, 0),
        (ALL_WITHOUT_LABELS, (0, 35), 70, 30, 48),
        (BOTH, (0, 0), 0, 0, 0),
    ],
)
def test_images_of_a_phase(
    uses: Uses, drawn_from: tuple[int, int], passes: int, at_most: int, per_round: int
) -> None:
    sizes = DrawnFrom(*drawn_from)
    two_passes = Settings(images_per_round=None, local_epochs=2, batch=16)
    assert phase_images(two_passes, uses, sizes) == passes
    ended = two_passes.model_copy(update={"images_at_most": 30})
    assert phase_images(ended, uses, sizes) == at_most
    fixed = ended.model_copy(update={"images_per_round": 48})
    assert phase_images(fixed, uses, sizes) == per_round


def test_steps_of_a_site() -> None:
    """Images that do not fill a batch are spread over the others: 50 make three batches of 16."""
    settings = Settings(images_per_round=None, local_epochs=2, batch=16)
    assert most_steps(BOTH, settings, labelled=10, unlabelled=25) == 3
    assert most_steps(LABELS_SET_THE_PACE, settings, labelled=10, unlabelled=25) == 1
    assert most_steps(LABELS_SET_THE_PACE, settings, labelled=0, unlabelled=25) == 0
