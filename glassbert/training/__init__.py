"""Training: objectives, optimizers and schedules, the step, the trainer and its runs, many workers."""
