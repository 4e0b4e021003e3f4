"""Derivatives: the tape of the dynamic graph, its engine, and what users build on them."""
