"""The dashboard: an HTTP API over simulations and sweeps, and the page that draws what it answers.

Needs the extra ``kvsweep[serve]``; nothing else in the package imports this one.
"""
