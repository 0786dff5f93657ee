"""Coordinators on a network: federations, who may take part, and the service that hosts them."""
