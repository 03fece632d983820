"""What a reference learns from, and what lines and tables call it."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Literal, TypeAlias

from pydantic import ConfigDict

Input: TypeAlias = Literal["pixels", "features"]
Model: TypeAlias = Literal["svm", "logistic", "lda"]
Labels: TypeAlias = Literal["few", "all"]
"""Those that a method may see, or those of all images."""
MODELS: Mapping[Input, tuple[Model, ...]] = {
    "pixels": ("svm", "logistic"),
    "features": ("logistic", "lda"),
}
"""Input -> the models on it."""
TITLE_BEGIN = "reference: "
"""How the title of each reference begins, and that of no row."""
_MODEL_TITLES: Mapping[Model, str] = {
    "svm": "support vector machine",
    "logistic": "logistic regression",
    "lda": "linear discriminant analysis",
}


@dataclass(frozen=True, order=True)
class Reference:
    """A classifier of scikit-learn, by what it learns from."""

    # A line that names another kind of reference is refused where it is read.
    __pydantic_config__ = ConfigDict(extra="forbid")

    input: Input
    model: Model
    sites: Literal["pooled", "alone"]
    labels: Labels

    def __str__(self) -> str:
        """Return its name among the rows of a study."""
        return f"reference {' '.join(astuple(self))}"

    @property
    def title(self) -> str:
        """What tables call it."""
        images = "raw pixels" if self.input == "pixels" else "the encoder's features"
        sites = "pooled" if self.sites == "pooled" else "each site alone"
        model = _MODEL_TITLES[self.model]
        return f"{TITLE_BEGIN}{model} on {images}, {sites}, {self.labels} labels"


def references_on(input_name: Input, label_sets: Sequence[Labels]) -> Iterator[Reference]:
    """Yield the references that learn from an input, pooled and at each site alone."""
    for sites in ("pooled", "alone"):
        for model in MODELS[input_name]:
            for labels in label_sets:
                yield Reference(input_name, model, sites, labels)
