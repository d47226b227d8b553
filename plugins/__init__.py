"""Built-in plugins. They use the same hooks as third-party plugins."""
