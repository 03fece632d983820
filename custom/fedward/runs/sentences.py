"""Sentences about a run that the console, log lines, commands and pages have in common."""

from collections.abc import Iterable, Mapping, Sequence

from fedward.storage.info import Leaks
from fedward.text import count, natural

MOST_SITES = 10
"""Number of sites that get a line of their own in a terminal."""

MOST_NAMED = 6
"""Number of sites that a sentence names at most; of more sites it gives the number alone."""


def named(names: Sequence[str], noun: str = "site") -> str:
    """Return names, each once; of many only their number, with the noun of what they name."""
    unique = dict.fromkeys(names)
    if len(unique) > MOST_NAMED:
        return count(len(unique), noun)
    return ", ".join(unique) or "none"


def in_brackets(sites: Sequence[str]) -> str:
    """Return names to follow their number, in brackets after a space; empty for many sites."""
    return f" ({', '.join(sites)})" if len(sites) <= MOST_NAMED else ""


def lowest_and_highest(values: Mapping[str, float], form: str = ".3f") -> str:
    """Return the lowest and the highest value, each with its site.

    Args:
        values: site -> value, of one site or more.
        form: how a value is written, as in :func:`format`.
    """
    low = min(values, key=values.__getitem__)
    high = max(values, key=values.__getitem__)
    lowest = format(values[low], form)
    highest = format(values[high], form)
    if len(values) == 1:
        return f"{lowest} at {low}"
    if lowest == highest:
        return f"{lowest} at each"
    return f"lowest {lowest} at {low}, highest {highest} at {high}"


_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


def spelled(number: int) -> str:
    """Return a small whole number as a word, such as ``five``; a larger one in digits."""
    return _NUMBERS[number] if number < len(_NUMBERS) else str(number)


def first_sites(sites: Iterable[str]) -> list[str]:
    """Return the sites that a terminal shows of many, in the order of numbers in their names."""
    return sorted(sites, key=natural)[:MOST_SITES]


def omitted_sites(number: int) -> str:
    """Return how many of ``number`` sites a terminal omits; empty if all of them are shown."""
    return f"and {count(number - MOST_SITES, 'more site')}" if number > MOST_SITES else ""


def more_sites(number: int) -> str:
    """Return the same with the place where they are named, for sites of a run."""
    omitted = omitted_sites(number)
    return f"{omitted}, which the run folder names" if omitted else ""


def leaked(leaks: Mapping[str, Leaks]) -> list[str]:
    """Return sentences on what was in several splits, as one text; none if nothing was.

    Args:
        leaks: as in :class:`fedward.storage.info.RunInfo`.
    """
    if not leaks:
        return []
    in_several_splits = {name: leak.in_several_splits for name, leak in leaks.items()}
    in_training_and_test = {
        name: leak.in_training_and_test for name, leak in leaks.items() if leak.in_training_and_test
    }
    sentence = f"{_they_are(in_several_splits)} in several of training, validation and test."
    if not in_training_and_test:
        return [
            f"{sentence} None is in both training and test, but numbers on validation images, "
            "which choose the round, may be too good."
        ]
    return [
        f"{sentence} {_they_are(in_training_and_test)} in both training and test: the numbers are "
        "too good."
    ]


def _they_are(numbers: Mapping[str, int]) -> str:
    """Return the subject and verb of a sentence, such as ``8 pictures and 1 patient are``."""
    subject = " and ".join(count(number, name) for name, number in numbers.items())
    verb = "is" if sum(numbers.values()) == 1 else "are"
    return f"{subject} {verb}"


def _by_site(values: Mapping[str, object]) -> str:
    """Return each site with its value, in brackets; of many sites the first few and a number."""
    sites = [f"{site}: {values[site]}" for site in first_sites(values)]
    if len(values) > MOST_SITES:
        sites.append(more_sites(len(values)))
    return f"({'; '.join(sites)})"


def nobody_asked(enough: Mapping[str, str]) -> str:
    """Return at which sites nobody is asked for labels, and why; empty if there is no such site.

    Args:
        enough: site -> how many labels it already has.
    """
    if not enough:
        return ""
    return (
        "no labels are asked for where the job wants no more than the site already has "
        f"{_by_site(enough)}"
    )


def unanswered(open_questions: Mapping[str, int]) -> str:
    """Return where questions about labels wait, and who can answer them; empty if none waits.

    Args:
        open_questions: site -> images that it has asked about and that have no label yet.
    """
    if not open_questions:
        return ""
    return (
        f"{count(sum(open_questions.values()), 'image')} asked about had no label yet "
        f"{_by_site(open_questions)}. People answer on the page that `fedward annotate SITE_FILE` "
        "serves there."
    )


def no_head(classes: Sequence[str]) -> str:
    """Return which classes have no head, why, and what to do; empty if there is no such class."""
    if not classes:
        return ""
    return (
        f"No head for {', '.join(classes)}: no site has five labelled images or more of such a "
        "class, and sums over fewer may not leave a site. The model never predicts it. Label more "
        "of these images, or train on with fedavg from this run (`fedward run --init`)."
    )


def nothing_to_judge(untrained: Sequence[str]) -> str | None:
    """Return why a run has no results; None for one that may have some.

    Args:
        untrained: prefixes of the tensors that the run's rounds do not train.
    """
    if not untrained:
        return None
    parts = network_parts(untrained)
    return f"The {parts} has not been trained in this run, so there is nothing to judge."


def network_parts(prefixes: Sequence[str]) -> str:
    """Return prefixes of tensors, such as ``head.``, as names of a network's parts.

    The prefix of every tensor, which is empty, stands for the whole model.
    """
    return ", ".join(prefix.rstrip(".") or "model" for prefix in prefixes)
