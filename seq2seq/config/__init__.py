"""Every setting: its type, meaning, range and default."""
