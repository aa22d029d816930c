"""The command line: parsing, help, exit statuses; the only room that knows Hydra."""
