"""Redraw ``figures/gallery/*.png`` from the scripts beside this one: ``python figures/make_gallery.py [NAME…]``."""

import runpy
import sys
import tempfile
from pathlib import Path

from PIL import Image

from kvsweep.report.plots.files import write_figure

HERE = Path(__file__).parent
NAMES = (
    "heatmap",
    "success",
    "sufficient",
    "violins",
    "roofline",
    "permutations",
    "affinity",
    "ttl",
    "sources",
    "cliff",
    "capacity",
)
DPI = 120
LARGEST = 120_000
"""Most bytes of a picture that is checked in."""


def small(path: Path) -> Image.Image:
    """Return the picture in `path` with a palette, which holds these few colours in a third of the bytes."""
    with Image.open(path) as picture:
        return picture.convert("RGB").quantize(128, dither=Image.Dither.NONE)


def put(picture: Image.Image, target: Path) -> bool:
    """Write `picture` to `target` unless that shows the same; return whether it was written.

    Another release of a library may pack equal pixels otherwise, which is no reason to change a checked-in file.
    """
    if target.exists():
        with Image.open(target) as old:
            if old.size == picture.size and old.convert("RGB").tobytes() == picture.convert("RGB").tobytes():
                return False
    picture.save(target, optimize=True)
    return True


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        target = HERE / "gallery" / f"{name}.png"
        with tempfile.TemporaryDirectory() as folder:
            drawn = Path(folder, target.name)
            write_figure(runpy.run_path(str(HERE / f"{name}.py"))["make"](), drawn, dpi=DPI)
            written = put(small(drawn), target)
        size = target.stat().st_size
        print(f"{target} {size / 1e3:.0f} kB{'' if written else ', as it was'}")
        if size > LARGEST:
            sys.exit(f"{target} is {size} bytes; at most {LARGEST} are checked in")
