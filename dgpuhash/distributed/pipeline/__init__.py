"""One rank's share of a collective verb, in slices that overlap."""
