"""Graphs split over devices: which node runs where, segments, transfers, what runs them."""
