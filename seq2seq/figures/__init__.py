"""Pictures of attention and of scores; strings and numbers in, figures out."""
