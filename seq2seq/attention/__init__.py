"""The heart: masks, scoring functions and pooling, usable without the rest."""
