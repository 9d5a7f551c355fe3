"""Studies: options, plans and results of experiments, and the engine that runs them."""
