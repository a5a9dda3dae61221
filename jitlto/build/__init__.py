"""The build side: from a family's declaration to a fragment database. Needs no GPU and no driver."""
