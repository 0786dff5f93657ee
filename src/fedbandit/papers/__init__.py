"""The papers' figures and tables, declared."""
