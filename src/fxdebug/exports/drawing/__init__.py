"""The boxes, steps and arrows that a picture of a run shows, with their texts and colours."""
