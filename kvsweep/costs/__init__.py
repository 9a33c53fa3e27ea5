"""What restoring and recomputing cost: facts of a deployment in, residency and rates out.

Every formula is a plain Python function of scalars. The scalar path calls it as it stands and the grid
engine compiles the same source, so both give the same float64 bits. Apart from them, `curves` and
`roofline` hold the published curves of richer models: functions of arrays, for figures and tables.
"""
