"""Prices in cents."""

PRICES = {"tea": 350, "coffee": 420}
