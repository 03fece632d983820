"""Which classes' counts stay at a site: those of few images, and others that would give these away by subtraction."""

from collections.abc import Mapping

SMALLEST_COUNT = 5
"""Per-class numbers on fewer images than this stay at the site; a rare disease must not point at a patient."""

_ROOM = 2
"""By how many images a hidden sum must differ from the least, and the most, that it could be."""


def hidden_classes(counts: Mapping[str, int]) -> set[str]:
    """Return the classes of one split about which a site tells nothing.

    The server is told the number of all images and the counts of the classes that are not hidden, so it knows the sum
    of the hidden ones. Hidden are all classes with fewer than 5 images. If one of them has any, the sum may pin it: two
    small classes that sum to 2 have 1 each, if both are known to be there, and two that sum to 8 have 4. So unless the
    sum of the small ones is at least 2 from both ends of its range, further classes are hidden, the job's last ones
    first, until the sum is at least 2 above the least it could be (1 for a small class, 5 for each other). Their place
    in the list decides, not their size: of the smallest it would be known that it has no more than those that are
    shown, and this may pin a class again.

    Protected, from a reader who knows this rule, which classes are present, and which of the hidden ones are small:
    each hidden class that is present may have either of two counts or more. The reason: where the sum has room, one
    image can be moved between two hidden classes; and where a class more was hidden because the others had no room, 0
    or 1 above their least (or below their most), the two cases cannot be told apart.

    Less is protected where *all* classes are hidden, because there is none left to hide: a reader of the answer alone
    still finds two counts or more for each, but one who knows which classes are present may not (all images are of the
    one class that is). An absent class's 0 counts as no secret: where hidden classes sum to 0, no image is theirs.

    Not protected: the number of all images; the hidden sum, and that a class with 1 to 4 images is among the hidden;
    what the averages over all classes tell, which are exact and include hidden classes (the balanced accuracy of a
    model that names one class only is 1 over the number of classes that are present, and who searches for counts that
    fit several averages at once may find them); and what is learned by comparing splits, or one site's answers before
    and after its images changed.

    Args:
        counts: class -> images, all classes of the job in its order.
    """
    small = [name for name, count in counts.items() if count < SMALLEST_COUNT]
    hidden, total = set(small), sum(counts[name] for name in small)
    least = sum(counts[name] > 0 for name in small)
    if not total or least + _ROOM <= total <= least * (SMALLEST_COUNT - 1) - _ROOM:
        return hidden
    for name in reversed([name for name in counts if name not in hidden]):
        hidden.add(name)
        least, total = least + SMALLEST_COUNT, total + counts[name]
        if least + _ROOM <= total:
            break
    return hidden
