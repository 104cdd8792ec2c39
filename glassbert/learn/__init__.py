"""Learning: the course, the referee for learners, and the glass."""
