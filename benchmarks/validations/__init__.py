"""One module a validation, each with `measure()`."""
