"""The build side: from a family declaration to a fragment database. Needs no GPU and no driver."""
