"""The exercises, by topic. Each module enters its exercises into `glassbert.learn.exercise.EXERCISES`."""
