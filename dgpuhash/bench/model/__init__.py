"""Performance model of larger clusters, checked against measurements."""
