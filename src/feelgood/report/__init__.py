"""One page about runs, and every kind of chart that their tables allow."""
