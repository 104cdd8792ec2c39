"""One right answer to each exercise. They are also the text that mistakes and planted faults are made of."""
