"""Studies: grids of whole cluster simulations, resumable and in parallel, and the questions asked of them."""
