"""Built-in plugins, each through the same hooks as anybody else's."""
