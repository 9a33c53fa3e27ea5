"""Models read from the ``config.json`` that a checkpoint is published with (field names of Hugging Face)."""
