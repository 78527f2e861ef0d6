"""Groups with more rows than a worker is to have: medians and quantiles without sending them."""
