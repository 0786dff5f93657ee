"""What maintainers run: `python -m tools.site` builds the documentation."""
