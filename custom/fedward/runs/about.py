"""What a run's study and sites state about themselves, and how many images each site used."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from fedward.cards import SITE_ITEMS, STUDY_ITEMS
from fedward.evaluation.small_counts import SMALLEST_COUNT
from fedward.runs.run import Run
from fedward.runs.sentences import spelled
from fedward.runs.site_lines import SiteLine
from fedward.text import count

NOT_STATED = "not stated"
"""What pages show in place of an empty text."""


@dataclass(frozen=True)
class SiteItem:
    """One item of the sites' cards."""

    title: str
    texts: Mapping[str, Sequence[str]]
    """Text -> sites that state it, in the run's order."""
    silent: Sequence[str]
    """Sites that state nothing."""

    @property
    def brief(self) -> str:
        """The item in one text; empty where no site states it."""
        sites = sum(map(len, self.texts.values()))
        if not sites:
            return ""
        of_all = f"{sites} of {count(sites + len(self.silent), 'site')}"
        if len(self.texts) > 1:
            return f"stated by {of_all}, in the full report"
        text = next(iter(self.texts))
        return f"{text} (stated by {of_all})" if self.silent else text


@dataclass(frozen=True)
class FlowLine:
    """The images of one site, from its files to its splits."""

    line: SiteLine
    unusable: int | None
    """Rows that cannot be used, in fives; None where the site does not say."""
    listed: int | None
    """Rows at least; None where parts of them are unknown, or not counted by image."""


@dataclass(frozen=True)
class About:
    """All that a run's folder says about its study and data beside numbers."""

    study: Mapping[str, str]
    """Title of an item of the study's card -> its text; empty where it is not stated."""
    items: Sequence[SiteItem]
    """Items of the sites' cards."""
    flow: Sequence[FlowLine]
    """One line for each site."""
    uncounted: str
    """Which validation and test images are in no count, in a sentence; empty where all are counted.
    """

    @classmethod
    def of(cls, run: Run, lines: Sequence[SiteLine]) -> "About":
        """Return what a run says; ``lines`` are those of its sites."""
        stated: Mapping[str, str] = run.data.get("card") or {}
        return cls(
            study={title: stated.get(name, "") for name, title in STUDY_ITEMS.items()},
            items=[_item(run, name, title) for name, title in SITE_ITEMS.items()],
            flow=[_flow(run, line) for line in lines],
            uncounted=_uncounted(run),
        )

    @property
    def brief(self) -> Mapping[str, str]:
        """Title -> text of further items that fit one page; empty where nobody states them."""
        by_title = {item.title: item.brief for item in self.items}
        names = ("labelled_by", "devices", "dates")
        of_sites = {SITE_ITEMS[name]: by_title[SITE_ITEMS[name]] for name in names}
        contact = STUDY_ITEMS["contact"]
        return {contact: self.study[contact]} | of_sites

    @property
    def purpose(self) -> Mapping[str, str]:
        """Title -> text of what the model is and is not intended for; empty if not stated."""
        titles = (STUDY_ITEMS["intended_use"], STUDY_ITEMS["not_for"])
        return {title: self.study[title] for title in titles}


def _item(run: Run, name: str, title: str) -> SiteItem:
    texts: dict[str, list[str]] = {}
    silent = []
    for site in run.info.sites:
        card = run.info.cards.get(site)
        text = card.texts.get(name) if card else None
        if text:
            texts.setdefault(text, []).append(site)
        else:
            silent.append(site)
    return SiteItem(title, texts, silent)


def _uncounted(run: Run) -> str:
    """Return which validation and test images are in no count.

    Synthetic images are all counted, and so are those that may show several classes: there the
    small-count rule leaves out classes, and no images.
    """
    all_synthetic = run.info.synthetic and all(run.info.synthetic.values())
    if all_synthetic or not run.label_kind.exclusive:
        return ""
    return (
        f"Validation and test {run.unit}s of classes with fewer than {spelled(SMALLEST_COUNT)} at "
        "the site are in no count, so a site may list more."
    )


def _flow(run: Run, line: SiteLine) -> FlowLine:
    card = run.info.cards.get(line.site)
    unusable = card.unusable if card else None
    listed = None
    known = (unusable, line.labelled, line.unlabelled)
    if run.unit == "image" and None not in known:
        listed = sum(number or 0 for number in known) + line.val + line.test
    return FlowLine(line, unusable, listed)


def spelled_out(run: Run, *texts: str) -> str:
    """Return the classes that texts name and that have a title, each with it."""
    all_texts = " ".join(texts)
    named = [
        f"{name} {title}".replace(" ", "\u00a0")
        for name, title in run.titles.items()
        if re.search(rf"(?<!\w){re.escape(name)}(?!\w)", all_texts)
    ]
    return " · ".join(named)


def with_titles(run: Run, names: Sequence[str]) -> list[str]:
    """Return classes as ``MEL (melanoma)``; those without a title as they are."""
    return [f"{name} ({run.titles[name]})" if name in run.titles else name for name in names]
