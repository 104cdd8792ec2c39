"""Reports: one look for every page the program writes."""
