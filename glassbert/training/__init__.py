"""Training: objectives, optimizers, schedules, the training step, the trainer, run folders, several workers."""
