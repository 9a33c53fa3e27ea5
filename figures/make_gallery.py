"""Redraw ``figures/gallery/*.png`` from the scripts beside this one: ``python figures/make_gallery.py [NAME…]``."""

import runpy
import sys
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

if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        target = HERE / "gallery" / f"{name}.png"
        write_figure(runpy.run_path(str(HERE / f"{name}.py"))["make"](), target, force=True, dpi=DPI)
        with Image.open(target) as picture:  # a palette holds these few colours in a third of the bytes
            picture.convert("RGB").quantize(128, dither=Image.Dither.NONE).save(target, optimize=True)
        size = target.stat().st_size
        print(f"{target} {size / 1e3:.0f} kB")
        if size > LARGEST:
            sys.exit(f"{target} is {size} bytes; at most {LARGEST} are checked in")
