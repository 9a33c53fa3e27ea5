"""Decisions that a cluster file chooses by name, one module each, and those from files of users."""
