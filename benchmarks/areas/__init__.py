"""One module an area, each with `measure(tiny)`."""
