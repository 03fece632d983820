"""How much memory does a site need for its part of a large npz file?

    OMP_NUM_THREADS=1 python benchmarks/npz_memory.py [--images N]

Makes a file of colour images of 224 pixels, as MedMNIST+ has them, and reads the part of one of
four sites in a process of its own, at 224 pixels and at 32. The peak of the process's memory beyond
that of its imports is set beside the site's own pixels. The whole file must not be in memory: exit
status 1 if the peak at 32 pixels is above a tenth of the file's pixels.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

SIDE = 224
SITES = 4
LIMIT = 0.1
"""Share of all pixels of the file that a site may need at 32 pixels."""
CHILD = """\
import sys
from pathlib import Path
from fedward.config import DataSpec
from fedward.sites import load_site

def peak():
    # getrusage would count the parent's memory, from before this program replaced it.
    (line,) = [row for row in Path("/proc/self/status").open() if row.startswith("VmHWM")]
    return int(line.split()[1]) * 1024

spec = DataSpec(classes=("a", "b"), image_size=int(sys.argv[2]))
before = peak()
data = load_site(Path(sys.argv[1]), spec)
pixels = sum(part.pixels.nbytes for part in (data.labelled, data.unlabelled, data.val, data.test))
print(peak() - before, pixels)
"""


def write(folder: Path, images: int) -> Path:
    """Write the file and the site file of one of four sites; return the latter."""
    rng = np.random.default_rng(0)
    pixels = rng.integers(0, 256, (images, SIDE, SIDE, 3), np.uint8)
    labels = np.arange(images) % 2
    arrays: dict[str, np.ndarray] = {}
    indices = {}
    for split, first, last in (("train", 0, 0.7), ("val", 0.7, 0.8), ("test", 0.8, 1)):
        part = slice(int(first * images), int(last * images))
        arrays |= {f"{split}_images": pixels[part], f"{split}_labels": labels[part]}
        indices[split] = list(range(len(labels[part]) // SITES))
    np.savez(folder / "large.npz", allow_pickle=False, **arrays)
    site = folder / "site-1.yaml"
    site.write_text(
        f"kind: npz\nfile: large.npz\nlabels: {{0: a, 1: b}}\nindices: {json.dumps(indices)}\n"
    )
    return site


def main() -> int:
    """Measure both sizes and print a line for each."""
    parser = argparse.ArgumentParser(description="Memory of a site with an npz file.")
    parser.add_argument("--images", type=int, default=2000)
    images = parser.parse_args().images
    whole = images * SIDE * SIDE * 3
    with tempfile.TemporaryDirectory() as folder:
        site = write(Path(folder), images)
        print(f"all {images} images: {whole / 1e6:.0f} MB, {SITES} sites")
        for size in (SIDE, 32):
            command = [sys.executable, "-c", CHILD, str(site), str(size)]
            done = subprocess.run(command, check=True, capture_output=True, text=True)
            peak, pixels = map(int, done.stdout.split())
            print(
                f"{size} pixels: peak {peak / 1e6:.0f} MB for {pixels / 1e6:.0f} MB of the site, "
                f"{peak / whole:.2f} of all"
            )
    return 0 if peak <= LIMIT * whole else 1


if __name__ == "__main__":
    sys.exit(main())
