"""How much of recorded dialogues the offline notes keep, beside other ways to shorten them at the same size."""
