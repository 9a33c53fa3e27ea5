"""Every performance figure of the project, each beside its baseline in the same run."""
